//! A payment's row, and its conversion to the domain.

use std::collections::HashMap;

use contracts::{Money, OrderId, PaymentId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    domain::{DeclineCode, Payment, Reference, Status},
    gateway::Intent,
};

/// A payment's row.
pub(crate) struct PaymentRow {
    pub(crate) payment_id: Uuid,
    pub(crate) order_id: Uuid,
    pub(crate) saga_id: Uuid,
    pub(crate) amount: i64,
    pub(crate) currency: String,
    pub(crate) method: String,
    pub(crate) status: String,
    pub(crate) gateway_reference: Option<String>,
    pub(crate) decline_code: Option<String>,
    pub(crate) cancelled_at: Option<OffsetDateTime>,
    pub(crate) captured_at: Option<OffsetDateTime>,
    pub(crate) refunded_at: Option<OffsetDateTime>,
    pub(crate) version: i64,
    pub(crate) created_at: OffsetDateTime,
    pub(crate) updated_at: OffsetDateTime,
}

/// A payment, as the steps use it.
#[derive(Clone)]
pub(crate) struct StoredPayment {
    pub(crate) saga_id: Uuid,
    pub(crate) intent: Intent,
    pub(crate) payment: Payment,
    /// The number of the payment's last event.
    pub(crate) version: i64,
    /// Whether it differs from its row.
    pub(super) changed: bool,
}

impl StoredPayment {
    pub(crate) fn set_status(&mut self, status: Status) {
        self.changed |= self.payment.status != status;
        self.payment.status = status;
    }

    /// The number of the payment's next event.
    pub(crate) fn next_event(&mut self) -> i64 {
        self.changed = true;
        self.version += 1;
        self.version
    }
}

/// The payments of a batch, by order.
pub(crate) type Payments = HashMap<OrderId, StoredPayment>;

impl PaymentRow {
    pub(crate) fn money(&self) -> Result<Money, sqlx::Error> {
        let currency = self.currency.parse().map_err(|_| self.unreadable("its currency"))?;
        Ok(Money::new(self.amount, currency))
    }

    fn status(&self) -> Result<Status, sqlx::Error> {
        let reference = || self.gateway_reference.clone().map(Reference);
        let status = match self.status.as_str() {
            "PENDING" => Some(Status::Pending),
            "CAPTURED" => reference().map(Status::Captured),
            "REFUNDED" => reference().map(Status::Refunded),
            "DECLINED" => self.decline_code.clone().map(|code| Status::Declined(DeclineCode(code))),
            // A tombstone was inserted cancelled, and never charged.
            "VOIDED" => Some(Status::Voided { asked: self.cancelled_at != Some(self.created_at) }),
            _ => None,
        };
        status.ok_or_else(|| self.unreadable(&format!("it is {} without the columns of that status", self.status)))
    }

    pub(super) fn read(self) -> Result<StoredPayment, sqlx::Error> {
        let payment = Payment { status: self.status()?, cancelled: self.cancelled_at.is_some() };
        let (payment_id, order_id, amount) = (PaymentId(self.payment_id), OrderId(self.order_id), self.money()?);
        let intent = Intent { payment_id, order_id, amount, method: self.method };
        Ok(StoredPayment { saga_id: self.saga_id, intent, payment, version: self.version, changed: false })
    }

    /// The error of a row that the table's constraints should prevent.
    fn unreadable(&self, what: &str) -> sqlx::Error {
        sqlx::Error::Decode(format!("payment {} is unreadable: {what}", self.payment_id).into())
    }
}
