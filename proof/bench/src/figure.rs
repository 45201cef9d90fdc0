//! Measured figures with their targets, as a table and as JSON.

use std::fmt;

use reports::Table;
use serde::Serialize;

/// One measured number.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<Target>,
    /// The single measurements, where the value is their median or mean.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) of: Vec<f64>,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Figure { name: name.into(), value, unit, target: None, of: Vec::new() }
    }

    pub(crate) fn median_of(name: impl Into<String>, measured: &[f64], unit: &'static str) -> Self {
        Figure { of: measured.to_vec(), ..Figure::new(name, median(measured), unit) }
    }

    /// A ratio that was measured several times.
    pub(crate) fn ratio_of(name: impl Into<String>, measured: &[f64]) -> Self {
        Figure { of: measured.to_vec(), ..Figure::new(name, trimmed_mean(measured), "") }
    }

    pub(crate) fn at_least(self, least: f64) -> Self {
        Figure { target: Some(Target::AtLeast(least)), ..self }
    }

    pub(crate) fn at_most(self, most: f64) -> Self {
        Figure { target: Some(Target::AtMost(most)), ..self }
    }

    fn met(&self) -> Option<bool> {
        self.target.map(|target| match target {
            Target::AtLeast(least) => self.value >= least,
            Target::AtMost(most) => self.value <= most,
        })
    }
}

/// The median; 0 for an empty slice.
pub(crate) fn median(measured: &[f64]) -> f64 {
    let mut sorted = measured.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The geometric mean without the lowest and the highest of five or more; 0 for an empty slice. It varies less than the median,
/// one outlier does not matter, and the mean of the reciprocals is its reciprocal.
fn trimmed_mean(measured: &[f64]) -> f64 {
    let mut sorted = measured.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = match sorted.len() {
        0 => return 0.0,
        1..5 => &sorted[..],
        all => &sorted[1..all - 1],
    };
    (middle.iter().map(|value| value.ln()).sum::<f64>() / middle.len() as f64).exp()
}

/// The results of one run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Results {
    parts: Vec<PartResult>,
}

#[derive(Debug, Serialize)]
struct PartResult {
    part: String,
    /// Figures without a clean audit are void.
    audit_clean: bool,
    figures: Vec<Figure>,
    /// Why the part has no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Results {
    pub(crate) fn add(&mut self, part: String, figures: Vec<Figure>, audit_clean: bool) {
        self.parts.push(PartResult { part, audit_clean, figures, error: None });
    }

    pub(crate) fn add_failed(&mut self, part: String, error: &anyhow::Error) {
        let error = Some(format!("{error:#}"));
        self.parts.push(PartResult { part, audit_clean: false, figures: Vec::new(), error });
    }

    /// A figure of an earlier part of this run, if its audit was clean.
    pub(crate) fn value(&self, part: &str, name: &str) -> Option<f64> {
        let part = self.parts.iter().find(|p| p.part == part && p.audit_clean)?;
        part.figures.iter().find(|f| f.name == name).map(|f| f.value)
    }

    /// Whether everything was measured and every audit is clean.
    pub(crate) fn good(&self) -> bool {
        self.parts.iter().all(|part| part.audit_clean)
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(["part", "figure", "value", "unit", "target", "met"]);
        for part in &self.parts {
            if let Some(error) = &part.error {
                writeln!(f, "{} could not be measured: {error}", part.part)?;
            }
            for figure in &part.figures {
                let target = match figure.target {
                    Some(Target::AtLeast(least)) => format!(">= {}", number(least)),
                    Some(Target::AtMost(most)) => format!("<= {}", number(most)),
                    None => String::new(),
                };
                let met = match (part.audit_clean, figure.met()) {
                    (false, _) => "VOID: the audit is not clean",
                    (true, Some(true)) => "yes",
                    (true, Some(false)) => "NO",
                    (true, None) => "",
                };
                let (value, unit) = (number(figure.value), figure.unit.to_owned());
                table.row([part.part.clone(), figure.name.clone(), value, unit, target, met.to_owned()]);
            }
        }
        write!(f, "\n{table}")
    }
}

/// At least three significant digits, with at most two decimals.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_value() {
        assert_eq!(
            [median(&[]), median(&[3.0]), median(&[9.0, 1.0, 2.0]), median(&[1.0, 2.0, 4.0, 9.0])],
            [0.0, 3.0, 2.0, 3.0]
        );
    }

    #[test]
    fn one_outlier_does_not_move_a_trimmed_mean() {
        let means = [&[][..], &[1.0, 4.0], &[900.0, 1.0, 4.0, 2.0, 8.0]].map(trimmed_mean);
        assert!(means.iter().zip([0.0, 2.0, 4.0]).all(|(mean, wanted)| (mean - wanted).abs() < 1e-9), "{means:?}");
    }

    #[test]
    fn figures_of_a_part_with_a_dirty_audit_are_void() {
        let mut results = Results::default();
        results.add("saturated".to_owned(), vec![Figure::new("sagas", 2_000.0, "1/s").at_least(1_200.0)], false);
        assert!(!results.good() && results.value("saturated", "sagas").is_none());
        assert!(results.to_string().contains("VOID") && !results.to_string().contains("yes"));
    }

    #[test]
    fn targets_are_floors_or_ceilings() {
        assert_eq!(Figure::new("a", 1.0, "").at_least(1.0).met(), Some(true));
        assert_eq!(Figure::new("a", 1.1, "").at_most(1.0).met(), Some(false));
        assert_eq!(Figure::new("a", 1.1, "").met(), None);
    }
}
