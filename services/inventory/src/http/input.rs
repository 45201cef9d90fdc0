//! What a request may contain, beyond what its types say. All faults are reported at once.

use bootstrap::{Problem, http::FieldError};
use contracts::{Money, charge::MIN_AMOUNT};

use crate::domain::MAX_SUPPLY;

/// The longest text that is stored, in characters.
const MAX_TEXT: usize = 200;

/// 422 with every fault that was found, if any was.
pub(super) fn refuse<const N: usize>(faults: [Option<FieldError>; N]) -> Result<(), Problem> {
    let faults: Vec<FieldError> = faults.into_iter().flatten().collect();
    let Some(first) = faults.first() else { return Ok(()) };
    let problem =
        Problem::unprocessable(format!("The request body is not acceptable: {} {}.", first.pointer, first.detail));
    Err(faults.into_iter().fold(problem, |problem, fault| problem.with_error(fault.pointer, fault.detail)))
}

pub(super) fn text(pointer: &str, text: Option<&str>) -> Option<FieldError> {
    let length = text?.chars().count();
    fault((1..=MAX_TEXT).contains(&length), pointer, || format!("must have 1 to {MAX_TEXT} characters, not {length}"))
}

pub(super) fn price(price: Option<Money>) -> Option<FieldError> {
    fault(price?.amount >= MIN_AMOUNT, "/price/amount", || {
        format!("must be at least {MIN_AMOUNT}: nothing can be charged for a product that costs nothing")
    })
}

pub(super) fn currency(price: Option<Money>) -> Option<FieldError> {
    let currency = price?.currency;
    fault(currency.is_listed(), "/price/currency", || {
        format!("must be a currency of ISO 4217, which {currency} is not")
    })
}

/// A number of units, `least` to [`MAX_SUPPLY`].
pub(super) fn units(pointer: &str, units: i64, least: i64) -> Option<FieldError> {
    let fits = (least..=MAX_SUPPLY).contains(&units);
    fault(fits, pointer, || format!("must be a number from {least} to {MAX_SUPPLY}, not {units}"))
}

fn fault(fits: bool, pointer: &str, detail: impl FnOnce() -> String) -> Option<FieldError> {
    (!fits).then(|| FieldError { pointer: pointer.to_owned(), detail: detail() })
}

#[cfg(test)]
mod tests {
    use contracts::Currency;

    use super::*;

    #[test]
    fn every_fault_is_reported_and_says_where() {
        let faults = [
            text("/name", Some("")),
            text("/category", None),
            text("/reason", Some(&"é".repeat(200))),
            price(Some(Money::new(-1, Currency::USD))),
            currency(Some(Money::new(1, Currency::USD))),
            currency("DOL".parse().ok().map(|dollar| Money::new(1, dollar))),
            units("/initial_quantity", 0, 0),
            units("/quantity", MAX_SUPPLY + 1, 1),
        ];
        let problem = refuse(faults).expect_err("four faults");
        assert_eq!(problem.status.as_u16(), 422);
        let pointers: Vec<_> = problem.errors.iter().map(|e| e.pointer.as_str()).collect();
        assert_eq!(pointers, ["/name", "/price/amount", "/price/currency", "/quantity"]);
        assert!(refuse([text("/name", Some("a")), units("/quantity", 1, 1)]).is_ok());
    }
}
