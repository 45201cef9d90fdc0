//! Output of tools and proofs: tables and shortened lists as text, JSON for programs.

use std::{
    fmt::{self, Write as _},
    path::Path,
};

use anyhow::Context;
use serde::Serialize;

/// A table of rows of equal length; the first one is the header.
#[derive(Debug, Clone)]
pub struct Table(Vec<Vec<String>>);

impl Table {
    pub fn new<const N: usize>(header: [&str; N]) -> Self {
        Table(vec![header.map(str::to_owned).into()])
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.push(cells.into());
    }

    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (number, row) in self.0.iter().enumerate() {
            let cells = row.iter().map(|cell| format!(" {} |", cell.replace('|', "\\|").replace('\n', " ")));
            // Writing to a string does not fail.
            let _ = writeln!(text, "|{}", cells.collect::<String>());
            if number == 0 {
                let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
            }
        }
        text
    }
}

/// For a terminal: every column is as wide as its widest cell, and columns of figures are right-aligned.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure =
            |cell: &String| cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || "-<>".contains(c));
        let columns: Vec<(usize, bool)> = (0..self.0[0].len())
            .map(|column| {
                let width = self.0.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
                (width, self.0[1..].iter().all(|row| figure(&row[column])))
            })
            .collect();
        for row in &self.0 {
            let cells = row.iter().zip(&columns).map(|(cell, (width, figures))| match figures {
                true => format!("{cell:>width$}"),
                false => format!("{cell:width$}"),
            });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A figure, or a dash.
pub fn or_dash(figure: Option<impl ToString>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string())
}

/// The first `most` lines, and the number of the others `of` all.
pub fn shortened(lines: &[String], most: usize, of: usize) -> impl Iterator<Item = String> {
    let more = of.saturating_sub(lines.len().min(most));
    lines.iter().take(most).cloned().chain((more > 0).then(|| format!("and {more} more")))
}

/// Writes one line per failure, and returns the verdict.
pub fn write_failures(f: &mut fmt::Formatter<'_>, failures: &[String]) -> Result<&'static str, fmt::Error> {
    failures.iter().try_for_each(|failure| writeln!(f, "FAILED  {failure}"))?;
    Ok(if failures.is_empty() { "passed" } else { "FAILED" })
}

pub fn write_json(found: &impl Serialize, file: &Path) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(found)?;
    std::fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["kind", "p99 ms", "says"]);
        table.row(["Service".to_owned(), "1200".to_owned(), "a | b".to_owned()]);
        table.row(["Nats".to_owned(), "-".to_owned(), String::new()]);
        table
    }

    #[test]
    fn columns_are_as_wide_as_their_cells_and_figures_right_aligned() {
        assert_eq!(table().to_string(), "kind     p99 ms  says\nService    1200  a | b\nNats          -\n");
    }

    #[test]
    fn a_bar_in_a_cell_is_escaped_in_markdown() {
        let expected = "| kind | p99 ms | says |\n|---|---|---|\n| Service | 1200 | a \\| b |\n| Nats | - |  |\n";
        assert_eq!(table().markdown(), expected);
    }

    #[test]
    fn a_shortened_list_counts_the_missing_lines() {
        let lines = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(shortened(&lines, 2, 3).collect::<Vec<_>>(), ["a", "b", "and 1 more"]);
        assert_eq!(shortened(&lines, 5, 9).last().as_deref(), Some("and 6 more"));
        assert_eq!(shortened(&lines, 3, 3).count(), 3);
    }
}
