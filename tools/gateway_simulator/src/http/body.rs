//! The bodies of charges and totals. Amounts are integers in minor units.

use bootstrap::Problem;
use contracts::charge::{self, MIN_AMOUNT};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    charge::{ChargeRequest, Currency},
    domain::CurrencyTotals,
};

/// The longest reference, in characters.
const MAX_REFERENCE: usize = 255;

/// The charge.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChargeBody {
    /// Minor units; 1,000,000 at most, or it is declined.
    #[schema(minimum = 1, example = 1999)]
    amount: i64,
    /// ISO 4217.
    #[schema(schema_with = contracts::iso_4217_schema)]
    currency: String,
    /// The card.
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\u0000-\u001f\u007f-\u009f]+$", example = "tok_visa")]
    token: String,
    /// The caller's own reference.
    #[schema(max_length = 255)]
    order_id: Option<String>,
    /// The caller's own reference.
    #[schema(max_length = 255)]
    customer_id: Option<String>,
}

/// Everything ever charged and refunded.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TotalsView {
    pub(super) totals: Vec<CurrencyTotals>,
}

impl ChargeBody {
    pub(super) fn validated(self) -> Result<ChargeRequest, Problem> {
        let mut problem = Problem::unprocessable("The charge is not acceptable; see `errors`.");
        let mut refuse = |pointer: &str, detail: &str| problem = problem.clone().with_error(pointer, detail);
        if self.amount < MIN_AMOUNT {
            refuse("/amount", "must be at least 1, in minor units");
        }
        let currency: Option<Currency> = self.currency.parse().ok().filter(Currency::is_listed);
        if currency.is_none() {
            refuse("/currency", "must be a currency of ISO 4217");
        }
        if !charge::is_name(&self.token) {
            refuse("/token", "must have 1 to 128 characters, none of them control characters");
        }
        for (pointer, text) in [("/order_id", &self.order_id), ("/customer_id", &self.customer_id)] {
            if text.as_ref().is_some_and(|text| text.chars().count() > MAX_REFERENCE) {
                refuse(pointer, "must have at most 255 characters");
            }
        }
        let (Some(currency), true) = (currency, problem.errors.is_empty()) else { return Err(problem) };
        let Self { amount, token, order_id, customer_id, .. } = self;
        Ok(ChargeRequest { amount, currency, token, order_id, customer_id })
    }
}
