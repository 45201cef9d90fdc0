//! Choreographed and orchestrated orders count alike, each once.

use super::Shown;
use crate::prelude::*;

const PRICE: i64 = 700;

#[suite_tests::test]
async fn business_metrics_count_orders_of_both_kinds_once() -> Test {
    let (suite, participants) = TestSuite::selling(PRICE, 10).await?;
    nothing_but(&participants, 0).await?;
    // An orchestrated order that is refused has ended when it is answered.
    for (kinds, path, refused) in [(1, "/api/orders", 201), (2, "/api/orders/orchestrated", 409)] {
        let client = &participants.order.client;
        let place = async |quantity: i64, token: &str| client.post(path, &order_of(&[("A", quantity)], token)).await;
        let confirmed = place(1, "tok_visa").await?.expect(201)?;
        participants.saga_becomes(&confirmed, "COMPLETED").await?;
        place(1, "tok_declined").await?.expect(refused)?;
        place(11, "tok_visa").await?.expect(refused)?;
        suite.all_ended().await?;
        ensure!(participants.cancel(&confirmed).await? == 202);
        participants.saga_becomes(&confirmed, "COMPENSATED").await?;
        nothing_but(&participants, kinds).await?;
    }
    suite.audit().await
}

/// Of so many kinds one order was confirmed, and cancelled by its customer; one declined, and one not filled.
async fn nothing_but(participants: &Participants, kinds: i64) -> Test {
    let each = kinds as f64;
    eventually(async || {
        Shown::by(participants).await?.expect(&[
            ("orders_accepted_total", &[], 3.0 * each),
            ("orders_confirmed_total", &[], each),
            ("revenue_minor_units_total", &[], (PRICE * kinds) as f64),
            ("orders_cancelled_total", &[], 3.0 * each),
            ("orders_cancelled_total", &[("reason", "out_of_stock")], each),
            ("orders_cancelled_total", &[("reason", "payment_refused")], each),
            ("orders_cancelled_total", &[("reason", "customer_request")], each),
            ("stock_refusals_total", &[], each),
            ("payments_declined_total", &[], each),
            ("payments_declined_total", &[("code", "card_declined")], each),
        ])
    })
    .await
}
