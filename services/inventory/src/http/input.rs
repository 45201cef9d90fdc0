//! Validation of requests, beyond their types. All errors are reported at once.

use bootstrap::{Problem, http::FieldError};
use contracts::{Money, charge::MIN_AMOUNT};

use crate::domain::MAX_SUPPLY;

/// The longest text that is stored, in characters.
const MAX_TEXT: usize = 200;

/// 422 with all errors, if there are any.
pub(super) fn validate<const N: usize>(errors: [Option<FieldError>; N]) -> Result<(), Problem> {
    let errors: Vec<FieldError> = errors.into_iter().flatten().collect();
    let Some(first) = errors.first() else { return Ok(()) };
    let problem =
        Problem::unprocessable(format!("The request body is not acceptable: {} {}.", first.pointer, first.detail));
    Err(errors.into_iter().fold(problem, |problem, error| problem.with_error(error.pointer, error.detail)))
}

pub(super) fn text(pointer: &str, text: Option<&str>) -> Option<FieldError> {
    let length = text?.chars().count();
    check((1..=MAX_TEXT).contains(&length), pointer, || format!("must have 1 to {MAX_TEXT} characters, not {length}"))
}

pub(super) fn price(price: Option<Money>) -> Option<FieldError> {
    check(price?.amount >= MIN_AMOUNT, "/price/amount", || {
        format!("must be at least {MIN_AMOUNT}, the smallest amount that can be charged")
    })
}

pub(super) fn currency(price: Option<Money>) -> Option<FieldError> {
    let currency = price?.currency;
    check(currency.is_listed(), "/price/currency", || format!("must be a currency of ISO 4217, not {currency}"))
}

/// A number of units, `least` to [`MAX_SUPPLY`].
pub(super) fn units(pointer: &str, units: i64, least: i64) -> Option<FieldError> {
    let fits = (least..=MAX_SUPPLY).contains(&units);
    check(fits, pointer, || format!("must be a number from {least} to {MAX_SUPPLY}, not {units}"))
}

fn check(valid: bool, pointer: &str, detail: impl FnOnce() -> String) -> Option<FieldError> {
    (!valid).then(|| FieldError { pointer: pointer.to_owned(), detail: detail() })
}

#[cfg(test)]
mod tests {
    use contracts::Currency;

    use super::*;

    #[test]
    fn all_errors_are_reported_with_their_pointers() {
        let errors = [
            text("/name", Some("")),
            text("/category", None),
            text("/reason", Some(&"é".repeat(200))),
            price(Some(Money::new(-1, Currency::USD))),
            currency(Some(Money::new(1, Currency::USD))),
            currency("DOL".parse().ok().map(|dollar| Money::new(1, dollar))),
            units("/initial_quantity", 0, 0),
            units("/quantity", MAX_SUPPLY + 1, 1),
        ];
        let problem = validate(errors).expect_err("four errors");
        assert_eq!(problem.status.as_u16(), 422);
        let pointers: Vec<_> = problem.errors.iter().map(|e| e.pointer.as_str()).collect();
        assert_eq!(pointers, ["/name", "/price/amount", "/price/currency", "/quantity"]);
        assert!(validate([text("/name", Some("a")), units("/quantity", 1, 1)]).is_ok());
    }
}
