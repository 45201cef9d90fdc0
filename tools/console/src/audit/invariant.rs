//! The SQL invariants, one file each: the header comment is the name and the sentence, each row is a violation (one text
//! column, `violation`).

/// One SQL file of `src/invariants`.
#[derive(Debug, Clone, Copy)]
pub struct Invariant {
    pub name: &'static str,
    pub sql: &'static str,
}

impl Invariant {
    /// What the invariant says, from the comment below its name.
    pub fn sentence(&self) -> String {
        let comment = self.sql.lines().map_while(|line| line.strip_prefix("-- "));
        comment.skip(1).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn leaves_out(&self) -> bool {
        self.sql.contains("audit.in_flight")
    }
}

/// Counts all violations and keeps the first ones as examples.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Violations {
    pub count: u64,
    pub examples: Vec<String>,
}

impl Violations {
    const EXAMPLES: usize = 20;

    pub fn add(&mut self, violation: String) {
        self.count += 1;
        if self.examples.len() < Self::EXAMPLES {
            self.examples.push(violation);
        }
    }
}

impl FromIterator<String> for Violations {
    fn from_iter<I: IntoIterator<Item = String>>(found: I) -> Self {
        let mut violations = Violations::default();
        found.into_iter().for_each(|violation| violations.add(violation));
        violations
    }
}

macro_rules! invariants {
    ($($name:literal),* $(,)?) => {
        &[$(Invariant { name: $name, sql: include_str!(concat!("../invariants/", $name, ".sql")) }),*]
    };
}

/// All invariants, in the order of the report: what customers would notice comes first.
pub fn invariants() -> &'static [Invariant] {
    invariants![
        "stock_conserved",
        "money_conserved",
        "order_total",
        "order_terminal",
        "order_agrees_with_saga",
        "order_agrees_with_reservation",
        "order_agrees_with_payment",
        "one_charge_per_order",
        "nothing_held_on_cancelled",
        "no_orphans",
        "catalogue_agrees",
        "no_saga_stuck",
        "nothing_owed",
        "journal_legal",
        "steps_taken_once",
        "claims_took_effect",
        "outbox_empty",
        "aggregate_order",
        "inbox_unique",
        "dead_letters",
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invariant_begins_with_its_name_and_a_sentence() {
        for invariant in invariants() {
            let first = invariant.sql.lines().next();
            assert_eq!(first, Some(format!("-- {}", invariant.name).as_str()));
            let sentence = invariant.sentence();
            assert!(sentence.len() > 20 && sentence.ends_with('.'), "{}: {sentence:?}", invariant.name);
        }
    }

    #[test]
    fn every_sql_file_is_an_invariant() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/invariants");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("the folder of invariants")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        let mut listed: Vec<String> = invariants().iter().map(|i| format!("{}.sql", i.name)).collect();
        files.sort();
        listed.sort();
        assert_eq!(files, listed);
    }

    #[test]
    fn all_violations_are_counted_and_the_first_are_kept() {
        let violations: Violations = (0..1_000).map(|n| n.to_string()).collect();
        assert_eq!(violations.count, 1_000);
        assert_eq!(violations.examples.len(), Violations::EXAMPLES);
        assert_eq!(violations.examples[0], "0");
    }
}
