//! Request and answer bodies of charges, refunds, voids and totals. Amounts are integers in minor units.

use bootstrap::Problem;
use contracts::charge::{self, MIN_AMOUNT};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    card::DeclineCode,
    charge::{Charge, ChargeRequest, Currency, Decline},
    domain::{ChargeAnswer, Totals, VoidAnswer},
};

/// The longest reference, in characters.
const MAX_REFERENCE: usize = 255;

/// What to charge.
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

/// Whether a charge went through.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChargeStatus {
    Captured,
    Declined,
}

/// A captured charge.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CapturedView {
    /// Always `captured`, also after a refund.
    status: ChargeStatus,
    #[serde(flatten)]
    charge: Charge,
    /// Whether all of it was given back.
    refunded: bool,
}

/// A declined charge.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeclinedView {
    idempotency_key: String,
    /// Always `declined`.
    status: ChargeStatus,
    decline_code: DeclineCode,
}

/// What became of a key; `status` tells which.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum OutcomeView {
    Captured(CapturedView),
    Declined(DeclinedView),
}

/// How a key came to hold no money.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(super) enum VoidView {
    /// Its charge was given back.
    Refunded {
        charge_id: Uuid,
        /// Minor units.
        amount: i64,
        currency: String,
    },
    /// It had none; a later one is declined with `voided`.
    Voided,
}

/// Everything ever charged and refunded.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TotalsView {
    totals: Vec<CurrencyTotalsView>,
}

/// One currency's sums, in minor units, and counts.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CurrencyTotalsView {
    currency: String,
    #[serde(flatten)]
    totals: Totals,
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

impl From<Charge> for CapturedView {
    fn from(charge: Charge) -> Self {
        Self { status: ChargeStatus::Captured, refunded: charge.refunded, charge }
    }
}

impl From<Decline> for DeclinedView {
    fn from(decline: Decline) -> Self {
        Self {
            idempotency_key: decline.idempotency_key.into(),
            status: ChargeStatus::Declined,
            decline_code: decline.decline_code,
        }
    }
}

impl From<ChargeAnswer> for OutcomeView {
    fn from(answer: ChargeAnswer) -> Self {
        match answer {
            ChargeAnswer::Captured(charge) => Self::Captured(charge.into()),
            ChargeAnswer::Declined(decline) => Self::Declined(decline.into()),
        }
    }
}

impl From<VoidAnswer> for VoidView {
    fn from(answer: VoidAnswer) -> Self {
        match answer {
            VoidAnswer::Refunded(Charge { charge_id, amount, currency, .. }) => {
                Self::Refunded { charge_id, amount, currency: currency.into() }
            }
            VoidAnswer::Voided => Self::Voided,
        }
    }
}

impl From<Vec<(Currency, Totals)>> for TotalsView {
    fn from(totals: Vec<(Currency, Totals)>) -> Self {
        Self { totals: totals.into_iter().map(Into::into).collect() }
    }
}

impl From<(Currency, Totals)> for CurrencyTotalsView {
    fn from((currency, totals): (Currency, Totals)) -> Self {
        Self { currency: currency.into(), totals }
    }
}
