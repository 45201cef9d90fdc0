//! Validation of specs, their JSON form, and scopes.

use serde_json::json;
use uuid::Uuid;

use crate::{FaultPoint, FaultSpec, Faults, Kind, Refused, Scope, Subject};

const ONE: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);

fn spec(kind: Kind) -> FaultSpec {
    FaultSpec::new(FaultPoint::GatewayCall, kind)
}

/// Arming refuses the same as validating, and a refused fault is not armed.
fn refusal(spec: FaultSpec) -> Option<Refused> {
    let faults = Faults::armable();
    let armed = faults.arm(spec.clone(), "test").err();
    assert_eq!(armed, spec.validate().err());
    assert_eq!(faults.armed().len(), usize::from(armed.is_none()));
    assert_eq!(faults.is_armed(), armed.is_none());
    armed
}

#[test]
fn every_kind_is_accepted_only_where_it_can_happen() {
    for point in FaultPoint::ALL {
        for kind in Kind::ALL {
            let spec = FaultSpec { latency_ms: (kind == Kind::Latency).then_some(10), ..FaultSpec::new(point, kind) };
            let expected = (!point.can(kind)).then_some(Refused::Impossible { point, kind });
            assert_eq!(refusal(spec), expected);
        }
    }
}

#[test]
fn a_contradictory_fault_is_refused() {
    let refused = [
        (spec(Kind::Error).every(2).first(2), Refused::TwoTriggers),
        (spec(Kind::Error).probability(0.5).first(2), Refused::TwoTriggers),
        (spec(Kind::Error).probability(0.5).every(2), Refused::TwoTriggers),
        (spec(Kind::Error).probability(0.5).every(2).first(2), Refused::TwoTriggers),
        (spec(Kind::Error).probability(-0.1), Refused::Probability(-0.1)),
        (spec(Kind::Error).probability(1.1), Refused::Probability(1.1)),
        (spec(Kind::Error).probability(f64::INFINITY), Refused::Probability(f64::INFINITY)),
        (spec(Kind::Error).every(0), Refused::Zero("every")),
        (spec(Kind::Error).first(0), Refused::Zero("first")),
        (spec(Kind::Duplicate).copies(0), Refused::Zero("copies")),
        (spec(Kind::Drop).copies(1), Refused::OnlyFor { field: "copies", kind: Kind::Duplicate }),
        (spec(Kind::Latency), Refused::NoLatency),
        (spec(Kind::Latency).latency(0), Refused::Zero("latency_ms")),
        (spec(Kind::Latency).latency(60_001), Refused::LatencyOutlastsFault(60)),
        (spec(Kind::Hang).latency(10), Refused::OnlyFor { field: "latency_ms", kind: Kind::Latency }),
        (spec(Kind::Error).expires_in(0), Refused::Expiry(0)),
        (spec(Kind::Error).expires_in(3601), Refused::Expiry(3601)),
    ];
    for (spec, expected) in refused {
        assert_eq!(refusal(spec), Some(expected));
    }
    let no_number = spec(Kind::Error).probability(f64::NAN).validate();
    assert!(matches!(no_number, Err(Refused::Probability(_))), "{no_number:?}");
}

#[test]
fn the_limits_themselves_are_accepted() {
    let accepted = [
        spec(Kind::Error).probability(0.0),
        spec(Kind::Error).probability(1.0).skip(u32::MAX),
        spec(Kind::Error).every(1),
        spec(Kind::Error).first(1).skip(0),
        spec(Kind::Error).every(u32::MAX).seed(u64::MAX),
        spec(Kind::Duplicate).copies(u8::MAX),
        spec(Kind::Latency).latency(1),
        spec(Kind::Latency).latency(60_000),
        spec(Kind::Latency).latency(3_600_000).expires_in(3600),
        spec(Kind::Error).expires_in(1),
    ];
    for spec in accepted {
        assert_eq!(refusal(spec), None);
    }
}

#[test]
fn a_refusal_names_the_alternatives() {
    let reason = |spec: FaultSpec| refusal(spec).expect("refused").to_string();
    let decline = FaultSpec::new(FaultPoint::InStep, Kind::Decline);
    assert_eq!(reason(decline), "decline cannot happen at in_step, only error, latency, hang, crash can");
    assert_eq!(reason(spec(Kind::Error).expires_in(4000)), "expires_in_seconds must be 1 to 3600, not 4000");
    assert_eq!(reason(spec(Kind::Drop).copies(2)), "copies is only for the kind duplicate");
}

#[test]
fn a_spec_in_json_has_the_agreed_names_and_nothing_else() {
    let text = json!({
        "point": "gateway_call", "kind": "duplicate", "copies": 2, "every": 3, "skip": 1, "seed": 7,
        "scope": {"saga_id": ONE, "order_id": OTHER, "sku": "A", "customer_id": "c", "step": "process_payment"},
        "expires_in_seconds": 30,
    });
    let scope = Scope::default().saga(ONE).order(OTHER).sku("A").customer("c").step("process_payment");
    let expected = spec(Kind::Duplicate).copies(2).every(3).skip(1).seed(7).scope(scope).expires_in(30);
    assert_eq!(serde_json::from_value::<FaultSpec>(text.clone()).expect("a spec"), expected);
    assert_eq!(serde_json::to_value(expected).expect("JSON"), text);
    assert_eq!(serde_json::to_value(spec(Kind::Drop)).expect("JSON"), json!({"point": "gateway_call", "kind": "drop"}));
}

#[test]
fn a_misspelt_field_is_refused() {
    let misspelt = [
        json!({"point": "in_step", "kind": "error", "scopes": {"sku": "A"}}),
        json!({"point": "in_step", "kind": "error", "scope": {"skus": "A"}}),
        json!({"point": "in_step", "kind": "errors"}),
        json!({"kind": "error"}),
        json!({"point": "in_step", "kind": "error", "skip": -1}),
        json!([]),
    ];
    for text in misspelt {
        assert!(serde_json::from_value::<FaultSpec>(text.clone()).is_err(), "{text}");
    }
}

#[test]
fn an_armed_fault_shows_its_defaults() {
    let faults = Faults::armable();
    let armed = faults.arm(spec(Kind::Duplicate).probability(0.5), "ada").expect("armed");
    let seed = armed.spec.seed.expect("a seed");
    assert!(seed < 1 << 53, "JSON parsers must represent it exactly");
    assert_eq!(armed.spec, spec(Kind::Duplicate).probability(0.5).copies(1).seed(seed).expires_in(60));
    assert_eq!((armed.expires_at - armed.armed_at).whole_seconds(), 60);
    assert_eq!(faults.armed(), std::slice::from_ref(&armed));

    let json = serde_json::to_value(&armed).expect("JSON");
    let shown: Vec<&str> = json.as_object().expect("an object").keys().map(String::as_str).collect();
    let fields = ["armed_at", "armed_by", "copies", "expires_at", "expires_in_seconds", "hits", "id", "kind", "passes"];
    assert_eq!(shown, [&fields[..], &["point", "probability", "seed", "shared"]].concat());
    assert_eq!((&json["id"], &json["armed_by"], &json["passes"]), (&json!(1), &json!("ada"), &json!(0)));
    assert!(json["expires_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{json}");
}

#[test]
fn only_needed_defaults_are_set() {
    let armed = Faults::armable().arm(spec(Kind::Error).every(2), "ada").expect("armed");
    assert_eq!(armed.spec, spec(Kind::Error).every(2).expires_in(60));
}

#[test]
fn a_scope_matches_only_if_all_its_values_match() {
    let subject = Subject::default().saga(ONE).order(OTHER).customer("c").skus(["A", "B"]).step("reserve_stock");
    type Narrow = fn(Scope, bool) -> Scope;
    let narrow: [Narrow; 5] = [
        |scope, right| scope.saga(if right { ONE } else { OTHER }),
        |scope, right| scope.order(if right { OTHER } else { ONE }),
        |scope, right| scope.sku(if right { "B" } else { "C" }),
        |scope, right| scope.customer(if right { "c" } else { "C" }),
        |scope, right| scope.step(if right { "reserve_stock" } else { "release_stock" }),
    ];
    // Each condition is left out, right or wrong: all 3^5 scopes.
    for number in 0..3_usize.pow(5) {
        let choices = [0, 1, 2, 3, 4].map(|place| number / 3_usize.pow(place) % 3);
        let scope = narrow.iter().zip(choices).fold(Scope::default(), |scope, (narrow, choice)| match choice {
            0 => scope,
            choice => narrow(scope, choice == 1),
        });
        assert_eq!(scope.matches(&subject), !choices.contains(&2), "{scope:?}");
        assert_eq!(scope.matches(&Subject::default()), choices == [0; 5], "{scope:?}");
    }
}

#[test]
fn a_process_without_faults_enabled_refuses_every_fault() {
    let faults = Faults::none();
    assert!(!faults.is_armable() && Faults::armable().is_armable());
    assert_eq!(faults.arm(spec(Kind::Error), "ada"), Err(Refused::NotArmable));
    assert!(faults.armed().is_empty() && faults.hits().is_empty() && !faults.is_armed());
    assert_eq!((faults.disarm(1), faults.disarm_all()), (false, 0));
}

#[cfg(feature = "openapi")]
#[test]
fn every_type_of_the_api_has_a_schema() {
    use utoipa::PartialSchema;
    let armed = serde_json::to_value(crate::Armed::schema()).expect("JSON").to_string();
    assert!(armed.contains("armed_by") && armed.contains("FaultSpec"), "{armed}");
    let spec = serde_json::to_value(FaultSpec::schema()).expect("JSON");
    assert_eq!(spec["required"], json!(["point", "kind"]));
}
