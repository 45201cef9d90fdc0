//! Reproducible randomness: HOSTILE_SEED is the seed (printed by a test that fails), HOSTILE_CASES the number of cases.

use proptest::{
    prelude::{Just, Strategy, any, prop_oneof},
    strategy::{BoxedStrategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::Map;

use crate::prelude::*;

pub(super) struct Dice(TestRunner);

impl Dice {
    pub(super) fn new() -> Self {
        let seed = setting("HOSTILE_SEED").unwrap_or(20_261_121);
        println!("HOSTILE_SEED={seed}");
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Dice(TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)))
    }

    pub(super) fn throw<S: Strategy>(&mut self, strategy: &S) -> S::Value {
        strategy.new_tree(&mut self.0).expect("nothing is filtered out").current()
    }
}

/// The number of cases of each kind; fewer in the everyday run.
pub(super) fn cases(everyday: u64) -> u64 {
    setting("HOSTILE_CASES").unwrap_or(everyday)
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

pub(super) fn bytes(longest: usize) -> BoxedStrategy<Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..longest).boxed()
}

/// Texts that commonly break software: control characters, NUL, quotes, right-to-left text, empty text, long text.
pub(super) fn text() -> BoxedStrategy<String> {
    let odd = [
        "",
        " ",
        "\0",
        "a\0b",
        "\u{1}\u{7f}",
        "\u{85}\u{a0}",
        "\u{202e}abc",
        "\u{feff}",
        "\u{10ffff}",
        "' or 1=1 --",
        "\"\\",
        "%00",
        "../../etc",
        "${x}",
        "null",
        "NaN",
        "-1",
        "1e999",
        "2026-13-45T99:99:99Z",
        "00000000-0000-0000-0000-000000000000",
    ];
    prop_oneof![
        proptest::sample::select(odd.map(str::to_owned).to_vec()),
        proptest::collection::vec(any::<char>(), 0..24).prop_map(String::from_iter),
        (1_usize..5_000).prop_map(|length| "x".repeat(length)),
    ]
    .boxed()
}

/// Any JSON, with a bias towards members of these names.
pub(super) fn json(names: Vec<String>) -> BoxedStrategy<Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
    ];
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), number, text().prop_map(Value::from)];
    let name = prop_oneof![4 => proptest::sample::select(names), 1 => text()];
    let deeper = move |inner: BoxedStrategy<Value>| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((name.clone(), inner), 0..7)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    };
    leaf.prop_recursive(5, 48, 7, move |inner| deeper(inner.boxed())).boxed()
}
