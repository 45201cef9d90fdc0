//! Whatever a test does to a suite, an audit says at its end whether the books are right. Leaving it out has a reason, which
//! stands in the test or, for all of its file, at the top: `Not audited: ...`.

use std::{fs, path::Path};

use anyhow::ensure;

use crate::{Test, arrows::files_below};

const REASON: &str = "Not audited: ";

/// A function of a file of tests.
struct Function<'t> {
    name: &'t str,
    is_test: bool,
    body: &'t str,
}

#[test]
fn every_test_on_a_stage_audits_or_says_why_not() -> Test {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let (mut looked_at, mut silent) = (0, Vec::new());
    for file in files_below(&folder)? {
        let text = fs::read_to_string(&file)?;
        let all_are_excused = text.lines().any(|line| line.starts_with("//!") && line.contains(REASON));
        let functions = functions(&text);
        let audits = |body: &str| body.contains("audit");
        let helpers: Vec<_> = functions.iter().filter(|f| !f.is_test && audits(f.body)).collect();
        for test in functions.iter().filter(|f| f.is_test && f.body.contains("Stage::")) {
            looked_at += 1;
            let by_helper = helpers.iter().any(|helper| test.body.contains(&format!("{}(", helper.name)));
            if !all_are_excused && !by_helper && !audits(test.body) && !test.body.contains(REASON) {
                silent.push(format!("{}: {}", file.display(), test.name));
            }
        }
    }
    ensure!(looked_at > 100, "only {looked_at} tests were found");
    ensure!(silent.is_empty(), "end with `stage.audit().await`, or say why not (`// {REASON}...`): {silent:#?}");
    Ok(())
}

/// Those at the outermost level, as rustfmt writes them.
fn functions(text: &str) -> Vec<Function<'_>> {
    let starts = text.match_indices("fn ").filter(|(at, _)| {
        let line = text[..*at].rsplit('\n').next().unwrap_or_default();
        line.is_empty() || ["async ", "pub ", "pub(super) ", "pub(crate) "].iter().any(|word| line.starts_with(word))
    });
    let function = |(at, _): (usize, &str)| {
        let rest = &text[at + 3..];
        let name = rest.split(['(', '<']).next()?;
        let body = rest.split("\n}\n").next()?;
        let before = text[..at].trim_end_matches("async ").trim_end();
        let is_test = before.rsplit("\n\n").next().is_some_and(|above| above.contains("test]"));
        Some(Function { name, is_test, body })
    };
    starts.filter_map(function).collect()
}
