//! The routes that every service has: description, health and metrics.

use crate::support::Lab;

#[tokio::test]
async fn every_route_is_in_the_openapi_document() {
    let lab = Lab::start().await;
    let document = lab.json("/openapi.json").await;
    let answers = |path: &str, method: &str| -> Vec<String> {
        let responses = document["paths"][path][method]["responses"].as_object();
        responses.unwrap_or_else(|| panic!("{method} {path} is missing")).keys().cloned().collect()
    };
    for status in ["200", "201", "400", "402", "422", "503"] {
        assert!(answers("/v1/charges", "post").contains(&status.to_owned()), "{status}");
    }
    assert!(answers("/v1/charges", "get").contains(&"404".to_owned()));
    assert!(answers("/v1/charges/{charge_id}/refund", "post").contains(&"404".to_owned()));
    assert!(answers("/v1/voids", "post").contains(&"400".to_owned()));
    assert!(answers("/v1/totals", "get").contains(&"200".to_owned()));
    for (method, status) in [("get", "200"), ("post", "422"), ("delete", "204")] {
        assert!(answers("/v1/faults", method).contains(&status.to_owned()));
    }
    let parameters = document["paths"]["/v1/charges"]["post"]["parameters"].as_array().unwrap();
    assert!(parameters.iter().any(|parameter| parameter["name"] == "Idempotency-Key" && parameter["required"] == true));
}

#[tokio::test]
async fn it_is_ready_and_counts_its_journal() {
    let lab = Lab::start().await;
    lab.charged("k", 100).await;
    let ready = lab.json("/health/ready").await;
    assert_eq!(ready["checks"]["journal"]["ok"], true);
    let metrics = lab.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("gateway_journal_entries_total 1"));
}
