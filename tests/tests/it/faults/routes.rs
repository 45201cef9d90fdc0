//! The routes of faults and the fault plan; a process without faults has neither.

use faults::Faults;

use super::UNAUDITED;
use crate::prelude::*;

#[suite_tests::test(unaudited = UNAUDITED)]
async fn faults_are_armed_listed_and_disarmed_over_rest_and_expire() -> Test {
    let suite = TestSuite::new().await?;
    let inventory = suite.start_with(INVENTORY, Faults::armable(), "").await?;
    let client = &inventory.client;
    let body = json!({"point": "in_step", "kind": "latency", "latency_ms": 5, "every": 3, "scope": {"sku": "A"}});
    let request = client.request(Method::POST, "/api/admin/faults").header("x-actor", "carol").json(&body);
    let armed = client.send(request).await?.expect(201)?;
    let holder = inventory.app.participant().holder.as_str();
    ensure!(armed["replicas"] == json!([holder]) && armed["missing"] == json!([]), "{armed:#}");
    ensure!(armed["armed_by"] == "carol" && armed["expires_in_seconds"] == 60, "{armed:#}");
    ensure!(armed["scope"]["sku"] == "A" && armed["every"] == 3 && armed["hits"] == 0, "{armed:#}");
    let second = client.post("/api/admin/faults", &json!({"point": "before_commit", "kind": "error"})).await?;
    second.expect(201)?;
    let listed = client.get("/api/admin/faults").await?.expect(200)?;
    ensure!(listed["items"].as_array().is_some_and(|items| items.len() == 2 && items[0] == armed), "{listed:#}");
    ensure!(listed["points"].as_array().is_some_and(|points| points.len() == faults::FaultPoint::ALL.len()));
    let delete = async |path: &str| client.delete(path, &json!({})).await;
    let first = format!("/api/admin/faults/{}", armed["id"]);
    delete(&first).await?.expect(200)?;
    ensure!(delete(&first).await?.status == 404);
    ensure!(delete("/api/admin/faults").await?.expect(200)?["disarmed"] == 1);
    let listed = client.get("/api/admin/faults").await?.expect(200)?;
    ensure!(listed["items"].as_array().is_some_and(Vec::is_empty), "{listed:#}");
    let unauthorized = reqwest::get(format!("{}/api/admin/faults", inventory.url)).await?.status();
    ensure!(unauthorized == 401);
    let hits = inventory.startup.metrics.encode()?;
    ensure!(hits.contains("faults_armed 0"), "the metrics lack the number of armed faults");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_fault_of_an_unknown_step_is_refused() -> Test {
    let suite = TestSuite::new().await?;
    let inventory = suite.start_with(INVENTORY, Faults::armable(), "").await?;
    // A step that does not exist, and one of another service.
    for step in ["reserve_stok", "process_payment"] {
        let fault = json!({"point": "in_step", "kind": "error", "scope": {"step": step}});
        let refused = inventory.client.post("/api/admin/faults", &fault).await?.expect(422)?;
        ensure!(refused["errors"][0]["pointer"] == "/scope/step", "{refused:#}");
        let detail = refused["detail"].as_str().unwrap_or_default();
        ensure!(detail.contains(step) && detail.contains("release_stock, reserve_stock"), "{refused:#}");
    }
    ensure!(!inventory.faults.is_armed());
    inventory.arm(&json!({"point": "in_step", "kind": "error", "scope": {"step": "reserve_stock"}})).await?;
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn without_faults_enabled_there_are_no_routes() -> Test {
    let (_suite, inventory) = TestSuite::alone(INVENTORY).await?;
    for (method, path) in [(Method::GET, "/api/admin/faults"), (Method::POST, "/api/admin/faults")] {
        let request = inventory.client.request(method, path).json(&json!({"point": "in_step", "kind": "error"}));
        ensure!(inventory.client.send(request).await?.status == 404);
    }
    let document = serde_json::to_string(&inventory.openapi)?;
    ensure!(!document.contains("/api/admin/faults"));
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_build_without_faults_has_no_trace_of_them() -> Test {
    let suite = TestSuite::new().await?;
    let settings = [("FAULTS_ENABLED", "true")];
    let order = Running::start_program(&suite, ORDER, "order-without-faults", &settings).await?;
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let request = order.client.request(method, "/api/admin/faults").json(&json!({}));
        ensure!(order.client.send(request).await?.status == 404);
    }
    let program = |name| anyhow::Ok(String::from_utf8_lossy(&std::fs::read(testkit::bin(name)?)?).into_owned());
    let (with, without) = (program("order")?, program("order-without-faults")?);
    for name in ["fault-plan", "faults_injected", "Arm a fault"] {
        ensure!(with.contains(name), "{name} is in no program: this proves nothing");
        ensure!(!without.contains(name), "{name} is in the program without faults");
    }
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_plan_is_armed_at_the_start_or_refused() -> Test {
    let suite = TestSuite::new().await?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("plan.json");
    std::fs::write(&path, json!([{"point": "http_in", "kind": "error", "first": 1}]).to_string())?;
    let plan = path.to_string_lossy().into_owned();
    let settings = [("FAULTS_ENABLED", "true"), ("FAULT_PLAN", plan.as_str())];
    let order = Running::start(&suite, ORDER, &settings).await?;
    ensure!(order.client.get("/api/products").await?.status == 500, "the planned fault did not hit");
    ensure!(order.client.get("/api/products").await?.status == 200);
    drop(order);
    std::fs::write(&path, json!([{"point": "http_in", "kind": "decline"}]).to_string())?;
    let refused = Running::start(&suite, ORDER, &settings).await.err().map(|error| format!("{error:#}"));
    ensure!(refused.as_ref().is_some_and(|text| text.contains("decline")), "{refused:?}");
    let misspelt = json!([{"point": "in_step", "kind": "error", "scope": {"step": "reserve_stok"}}]);
    std::fs::write(&path, misspelt.to_string())?;
    let refused = Running::start(&suite, ORDER, &settings).await.err().map(|error| format!("{error:#}"));
    ensure!(refused.as_ref().is_some_and(|text| text.contains("reserve_stok")), "{refused:?}");
    let production = [("FAULTS_ENABLED", "true"), ("APP_ENV", "production"), ("ADMIN_TOKEN", "a-long-secret-token")];
    let refused = Running::start(&suite, ORDER, &production).await.err().map(|error| format!("{error:#}"));
    ensure!(refused.as_ref().is_some_and(|text| text.contains("FAULTS_ENABLED")), "{refused:?}");
    Ok(())
}
