//! The dashboards as documents: every panel is complete, and everything that a panel names exists.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use sha2::{Digest, Sha256};

use super::boards::{Board, boards, rule_files};
use crate::{
    prelude::*,
    sources::{files, path, read},
};

/// The height of a 1920 x 1080 screen below Grafana's header, in grid units (30 px, and 8 between them).
const SCREEN: u64 = 25;

fn is_filled(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.trim().is_empty())
}

/// The uids of the datasources that Grafana is provisioned with.
fn datasources() -> anyhow::Result<BTreeSet<String>> {
    let mut uids = BTreeSet::new();
    for file in files("grafana/provisioning/datasources", "")? {
        let text = read(&file)?;
        let declared =
            text.lines().map(|line| line.trim_start_matches([' ', '-'])).filter_map(|l| l.strip_prefix("uid:"));
        uids.extend(declared.map(|uid| uid.trim().to_owned()));
    }
    ensure!(!uids.is_empty(), "no datasource is provisioned");
    Ok(uids)
}

#[test]
fn every_panel_has_title_description_unit_and_datasource() -> Test {
    let known = datasources()?;
    for board in boards()? {
        ensure!(is_filled(&board.json["title"]) && is_filled(&board.json["uid"]), "{} is not named", board.file);
        for panel in board.panels() {
            let name = format!("{} / {} ({})", board.file, panel["title"], panel["id"]);
            ensure!(is_filled(&panel["title"]) && is_filled(&panel["description"]), "{name} is not described");
            ensure!(is_filled(&panel["fieldConfig"]["defaults"]["unit"]), "{name} has no unit");
            let targets = panel["targets"].as_array().with_context(|| format!("{name} has no query"))?;
            ensure!(!targets.is_empty(), "{name} has no query");
            let named = targets.iter().map(|target| &target["datasource"]).filter(|source| !source.is_null());
            for source in named.chain([&panel["datasource"]]) {
                let uid = source["uid"].as_str().with_context(|| format!("{name} names no datasource"))?;
                ensure!(known.contains(uid), "{name}: there is no datasource {uid}");
            }
        }
    }
    Ok(())
}

#[test]
fn no_two_panels_share_an_id_or_a_place_and_no_two_boards_a_uid() -> Test {
    let mut uids = BTreeSet::new();
    for board in boards()? {
        ensure!(uids.insert(board.json["uid"].to_string()), "{} has another one's uid", board.file);
        let mut ids = BTreeSet::new();
        for grid in board.grids() {
            for (at, panel) in grid.iter().enumerate() {
                let id = panel["id"].as_u64().with_context(|| format!("{}: a panel without id", board.file))?;
                ensure!(ids.insert(id), "{}: two panels are number {id}", board.file);
                let place = place(panel).with_context(|| format!("{}: panel {id} has no place", board.file))?;
                ensure!(place.right <= 24 && place.right > place.left, "{}: panel {id} is outside", board.file);
                let covers = |other: &&Value| self::place(other).is_some_and(|other| other.overlaps(&place));
                if let Some(other) = grid[..at].iter().copied().find(covers) {
                    anyhow::bail!("{}: panels {id} and {} overlap", board.file, other["id"]);
                }
            }
        }
    }
    Ok(())
}

struct Place {
    left: u64,
    right: u64,
    top: u64,
    bottom: u64,
}

impl Place {
    fn overlaps(&self, other: &Place) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }
}

fn place(panel: &Value) -> Option<Place> {
    let number = |key: &str| panel["gridPos"][key].as_u64();
    let (left, top) = (number("x")?, number("y")?);
    Some(Place { left, right: left + number("w")?, top, bottom: top + number("h")? })
}

#[test]
fn links_lead_to_existing_boards() -> Test {
    let boards = boards()?;
    let uids: BTreeSet<&str> = boards.iter().filter_map(|board| board.json["uid"].as_str()).collect();
    for board in &boards {
        for uid in linked(board) {
            ensure!(uids.contains(&*uid), "{} links to board {uid}, which is not there", board.file);
        }
    }
    Ok(())
}

/// The uids in links of the form `/d/uid...`, wherever they stand.
fn linked(board: &Board) -> Vec<String> {
    let text = board.json.to_string();
    let links = text.split("\"/d/").skip(1).chain(text.split("](/d/").skip(1));
    let uid = |link: &str| link.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '_').collect();
    links.map(uid).collect()
}

#[test]
fn overview_and_saga_fit_on_one_screen() -> Test {
    for board in boards()?.iter().filter(|board| ["overview.json", "saga.json"].contains(&&*board.file)) {
        let bottom = board.grids()[0].iter().filter_map(|panel| place(panel)).map(|place| place.bottom).max();
        ensure!(bottom.is_some_and(|bottom| bottom <= SCREEN), "{} ends at {bottom:?}, not by {SCREEN}", board.file);
    }
    Ok(())
}

#[test]
fn the_pictures_match_the_boards() -> Test {
    let mut hash = Sha256::new();
    for board in boards()? {
        hash.update(read(&format!("grafana/dashboards/{}", board.file))?);
    }
    let shown = read("docs/images/boards.sha256")?;
    ensure!(shown.trim() == format!("{:x}", hash.finalize()), "the boards have changed: run ./scripts/pictures");
    for picture in ["overview", "saga", "scenario"] {
        let size = fs::metadata(path(&format!("docs/images/{picture}.png")))?.len();
        ensure!(size < 200_000, "docs/images/{picture}.png has {size} bytes");
    }
    Ok(())
}

#[test]
fn a_name_has_the_same_colour_on_every_board() -> Test {
    let mut colors: BTreeMap<String, (String, String)> = BTreeMap::new();
    for board in boards()? {
        for panel in board.panels() {
            for (name, color) in fixed_colors(panel) {
                let here = format!("{} / {}", board.file, panel["title"]);
                let (known, there) = colors.entry(name.clone()).or_insert_with(|| (color.clone(), here.clone()));
                ensure!(*known == color, "{name} is {color} in {here}, but {known} in {there}");
            }
        }
    }
    let services = contracts::SERVICES.map(|service| service.0);
    ensure!(services.iter().chain(&["confirmed", "stuck"]).all(|name| colors.contains_key(*name)));
    Ok(())
}

/// The series of a panel that have their own colour, and that colour.
fn fixed_colors(panel: &Value) -> Vec<(String, String)> {
    let overrides = panel["fieldConfig"]["overrides"].as_array().into_iter().flatten();
    let fixed = |field: &Value| {
        let properties = field["properties"].as_array()?;
        let color = properties.iter().find(|property| property["id"] == "color")?;
        Some((field["matcher"]["options"].as_str()?.to_owned(), color["value"]["fixedColor"].as_str()?.to_owned()))
    };
    overrides.filter_map(fixed).collect()
}

#[test]
fn every_alert_has_its_paragraph_in_the_runbook_and_a_panel_that_links_to_it() -> Test {
    let runbook = read("docs/runbook.md")?;
    let headings = runbook.lines().filter_map(|line| line.strip_prefix('#'));
    let headings: BTreeSet<_> = headings.map(|heading| heading.trim_matches(['#', ' ']).to_lowercase()).collect();
    let mut linked = BTreeSet::new();
    for board in boards()? {
        let text = board.json.to_string();
        for link in text.split("/runbook#").skip(1) {
            let alert: String = link.chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
            ensure!(alert.is_empty() || headings.contains(&alert.to_lowercase()), "the runbook has no {alert}");
            linked.insert(alert.to_lowercase());
        }
    }
    let mut count = 0;
    for file in rule_files()? {
        let text = read(&file)?;
        for name in alerts(&text).map(str::to_lowercase) {
            count += 1;
            ensure!(headings.contains(&name), "the runbook has no paragraph {name}");
            ensure!(text.contains(&format!("/runbook#{name}\n")), "{name} does not name its paragraph");
            ensure!(linked.contains(&name), "no panel leads to the runbook of {name}");
        }
    }
    ensure!(count >= 19, "only {count} alerts");
    Ok(())
}

/// The names of the alerts of a file of rules.
fn alerts(rules: &str) -> impl Iterator<Item = &str> {
    rules.lines().filter_map(|line| line.trim().strip_prefix("- alert:")).map(str::trim)
}

#[test]
fn promtool_accepts_the_rules_and_their_tests_pass() -> Test {
    let promtool = testkit::promtool()?;
    for (verb, files) in [("check", rule_files()?), ("test", files("grafana/alerts/tests", ".yml")?)] {
        ensure!(!files.is_empty(), "there is nothing to {verb}");
        let output = Command::new(&promtool).args([verb, "rules"]).args(files).current_dir(path("")).output()?;
        let said = [output.stdout, output.stderr].concat();
        ensure!(output.status.success(), "promtool {verb} rules:\n{}", String::from_utf8_lossy(&said));
    }
    Ok(())
}
