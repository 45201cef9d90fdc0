//! The result of an audit, as JSON and as a table.

use std::{collections::BTreeMap, fmt, time::Duration};

use reports::shortened;
use serde::Serialize;

use super::Violations;

/// The verdicts on all invariants.
#[derive(Debug, Serialize)]
pub struct Report {
    /// No invariant is violated, except tolerated ones.
    pub clean: bool,
    pub duration_ms: u64,
    pub invariants: Vec<Verdict>,
    /// What the snapshot held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
}

/// What an audit has accounted for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub orders: i64,
    /// Charged and not refunded, in minor units, by currency.
    pub kept: BTreeMap<String, i64>,
    /// Sagas whose compensation is under way.
    pub compensating: i64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { orders, kept, compensating } = self;
        write!(f, "{} orders", grouped(*orders))?;
        for (currency, minor) in kept {
            write!(f, ", {} {currency}", grouped(minor / 100))?;
        }
        write!(f, " accounted for; ")?;
        match compensating {
            0 => write!(f, "no saga is being undone."),
            1 => write!(f, "1 saga is being undone."),
            _ => write!(f, "{} sagas are being undone.", grouped(*compensating)),
        }
    }
}

/// A number with a comma between each three digits.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// One invariant and its violations.
#[derive(Debug, Serialize)]
pub struct Verdict {
    pub name: &'static str,
    pub sentence: String,
    pub violations: u64,
    /// Its violations are shown but do not make the report unclean.
    pub tolerated: bool,
    /// The first violations.
    pub examples: Vec<String>,
    /// Everything that could not be compared at this moment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

impl Verdict {
    pub fn new(name: &'static str, sentence: impl Into<String>, found: Violations) -> Self {
        let Violations { count, examples } = found;
        Verdict { name, sentence: sentence.into(), violations: count, tolerated: false, examples, left_out: Vec::new() }
    }

    /// The verdict with the names of what it leaves out.
    pub(super) fn without(self, left_out: &[String]) -> Self {
        Verdict { left_out: left_out.to_vec(), ..self }
    }

    pub fn ok(&self) -> bool {
        self.violations == 0 || self.tolerated
    }

    /// The verdict in one or two words.
    pub(crate) fn found(&self) -> String {
        match (self.violations, self.tolerated) {
            (0, _) => "ok".to_owned(),
            (count, true) => format!("{count} allowed"),
            (count, false) => format!("{count} VIOLATED"),
        }
    }
}

impl Report {
    pub fn new(invariants: Vec<Verdict>, took: Duration) -> Self {
        let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        Report { clean: invariants.iter().all(Verdict::ok), duration_ms, invariants, totals: None }
    }
}

const SHOWN: usize = 5;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.invariants.iter().map(|v| v.name.len()).max().unwrap_or(0);
        for verdict in &self.invariants {
            write!(f, "{:width$}  {:>12}  {}", verdict.name, verdict.found(), verdict.sentence)?;
            match verdict.left_out.len() {
                0 => writeln!(f)?,
                n => writeln!(f, " ({n} left out)")?,
            }
            for example in shortened(&verdict.examples, SHOWN, usize::try_from(verdict.violations).unwrap_or(SHOWN)) {
                writeln!(f, "{:width$}  {:>12}  - {example}", "", "")?;
            }
        }
        let violated = self.invariants.iter().filter(|v| !v.ok()).count();
        let verdict = if self.clean { "clean".to_owned() } else { format!("{violated} violated") };
        writeln!(f, "audit: {} invariants, {verdict} ({} ms)", self.invariants.len(), self.duration_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(name: &'static str, violations: u64) -> Verdict {
        Verdict::new(name, "Nothing is wrong.", (0..violations).map(|n| format!("wrong {n}")).collect())
    }

    #[test]
    fn one_violation_makes_a_report_unclean() {
        let report = Report::new(vec![verdict("good", 0), verdict("bad", 7)], Duration::ZERO);
        assert!(!report.clean);
        let table = report.to_string();
        assert!(table.contains("7 VIOLATED") && table.contains("wrong 4") && table.contains("and 2 more"), "{table}");
        assert!(!table.contains("wrong 5"), "{table}");
    }

    #[test]
    fn tolerated_violations_are_shown_but_clean() {
        let mut dead_letters = verdict("dead_letters", 1);
        dead_letters.tolerated = true;
        let report = Report::new(vec![dead_letters], Duration::ZERO);
        assert!(report.clean);
        assert!(report.to_string().contains("1 allowed"));
    }

    #[test]
    fn totals_are_one_sentence() {
        let kept = BTreeMap::from([("EUR".to_owned(), 950), ("USD".to_owned(), 123_456_700)]);
        let totals = Totals { orders: 12_403, kept, compensating: 2 };
        assert_eq!(totals.to_string(), "12,403 orders, 9 EUR, 1,234,567 USD accounted for; 2 sagas are being undone.");
    }

    #[test]
    fn left_out_entries_are_counted_in_the_table_and_named_in_json() {
        let report = Report::new(vec![verdict("good", 0).without(&["order 7".to_owned()])], Duration::ZERO);
        assert!(report.to_string().contains("Nothing is wrong. (1 left out)"), "{report}");
        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(json["invariants"][0]["left_out"], serde_json::json!(["order 7"]));
    }
}
