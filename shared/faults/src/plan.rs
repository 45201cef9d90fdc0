//! A fault plan: a JSON file with an array of faults. Either all of them are armed when the process starts, or none.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;

use crate::{FaultSpec, Faults, Refused};

/// The `armed_by` of the faults of a plan.
const ARMED_BY: &str = "FAULT_PLAN";

/// Why no fault of a plan is armed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    #[error("cannot read the fault plan {}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the fault plan {} is not a JSON array", .path.display())]
    NoArray { path: PathBuf, source: serde_json::Error },
    #[error("fault {index} (from 0) of the plan {} is not a fault", .path.display())]
    NoFault { path: PathBuf, index: usize, source: serde_json::Error },
    #[error("fault {index} (from 0) of the plan {} is refused", .path.display())]
    Refused { path: PathBuf, index: usize, source: Refused },
    #[error("the fault plan {} needs a process in which faults are enabled", .path.display())]
    NotArmable { path: PathBuf },
}

impl Faults {
    /// Arms all faults of the plan in this file, and returns how many. If one of them cannot be, none is.
    pub fn load_plan(&self, path: &Path) -> Result<usize, PlanError> {
        let path = || path.to_owned();
        if !self.is_armable() {
            return Err(PlanError::NotArmable { path: path() });
        }
        let text = fs::read(path()).map_err(|source| PlanError::Unreadable { path: path(), source })?;
        let plan: Vec<Value> =
            serde_json::from_slice(&text).map_err(|source| PlanError::NoArray { path: path(), source })?;
        let refused = |index| move |source| PlanError::Refused { path: path(), index, source };
        let mut specs = Vec::with_capacity(plan.len());
        for (index, fault) in plan.iter().enumerate() {
            let no_fault = |source| PlanError::NoFault { path: path(), index, source };
            let spec = FaultSpec::deserialize(fault).map_err(no_fault)?;
            spec.validate().map_err(refused(index))?;
            specs.push(spec);
        }
        for (index, spec) in specs.iter().enumerate() {
            self.arm(spec.clone(), ARMED_BY).map_err(refused(index))?;
        }
        Ok(specs.len())
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error, iter};

    use crate::{FaultPoint, Kind, Scope};

    use super::*;

    fn load(faults: &Faults, plan: &str) -> Result<usize, PlanError> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("plan.json");
        fs::write(&path, plan).expect("a file");
        faults.load_plan(&path)
    }

    /// The message and those of its sources.
    fn refusal(plan: &str) -> String {
        let faults = Faults::armable();
        let error = load(&faults, plan).expect_err("refused");
        assert!(faults.armed().is_empty(), "none of them is armed");
        let chain = iter::successors(Some(&error as &dyn Error), |&error| error.source());
        chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }

    #[test]
    fn a_plan_arms_its_faults_in_order() {
        let faults = Faults::armable();
        let plan = r#"[
            {"point": "gateway_call", "kind": "latency", "latency_ms": 300, "scope": {"sku": "A"}},
            {"point": "in_step", "kind": "error", "first": 2, "expires_in_seconds": 600}
        ]"#;
        assert_eq!(load(&faults, plan).expect("a plan"), 2);
        let armed: Vec<_> = faults.armed().into_iter().map(|armed| (armed.id, armed.spec, armed.armed_by)).collect();
        let slow = FaultSpec::new(FaultPoint::GatewayCall, Kind::Latency).latency(300);
        let slow = slow.scope(Scope::default().sku("A")).expires_in(60);
        let error = FaultSpec::new(FaultPoint::InStep, Kind::Error).first(2).expires_in(600);
        assert_eq!(armed, [(1, slow, ARMED_BY.to_owned()), (2, error, ARMED_BY.to_owned())]);
    }

    #[test]
    fn an_empty_plan_arms_nothing() {
        assert_eq!(load(&Faults::armable(), "[]").expect("a plan"), 0);
    }

    #[test]
    fn a_plan_with_an_invalid_fault_arms_none_and_names_it() {
        let good = r#"{"point": "in_step", "kind": "error"}"#;
        let cases = [
            (r#"{"point": "in_step", "kind": "drop"}"#, "is refused: drop cannot happen at in_step"),
            (r#"{"point": "in_step", "kind": "error", "every": 0}"#, "is refused: every must be at least 1"),
            (r#"{"point": "nowhere", "kind": "error"}"#, "is not a fault: unknown variant `nowhere`"),
            (r#"{"point": "in_step", "kind": "error", "scop": {}}"#, "is not a fault: unknown field `scop`"),
            ("7", "is not a fault: invalid type"),
        ];
        for (bad, why) in cases {
            let refusal = refusal(&format!("[{good}, {good}, {bad}, {good}]"));
            assert!(refusal.starts_with("fault 2 (from 0) of the plan /"), "{refusal}");
            assert!(refusal.contains(why), "{refusal}");
        }
    }

    #[test]
    fn a_plan_without_array_or_file_is_refused() {
        assert!(refusal(r#"{"point": "in_step", "kind": "error"}"#).contains("is not a JSON array: invalid type: map"));
        assert!(refusal("[{]").contains("is not a JSON array: key must be a string at line 1 column 3"));
        let missing = Faults::armable().load_plan(Path::new("/nowhere/plan.json"));
        assert!(matches!(missing, Err(PlanError::Unreadable { .. })), "{missing:?}");
    }

    #[test]
    fn a_plan_needs_a_process_with_faults_enabled() {
        assert!(matches!(load(&Faults::none(), "[]"), Err(PlanError::NotArmable { .. })));
    }
}
