use testkit::{Alertmanager, Prometheus};

#[tokio::test]
async fn both_servers_start_with_the_given_configuration_on_ports_of_their_own() {
    let receiver = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n";
    let (one, other) = (Alertmanager::start(receiver).await.unwrap(), Alertmanager::start(receiver).await.unwrap());
    assert_ne!(one.url(), other.url());
    let prometheus = Prometheus::start("global: {scrape_interval: 1s}\n").await.unwrap();
    assert!(prometheus.url().starts_with("http://127.0.0.1:"));
}

#[tokio::test]
async fn a_configuration_that_is_refused_is_told() {
    let refused = Prometheus::start("globe: {}\n").await.unwrap_err();
    assert!(format!("{refused:#}").contains("globe"), "{refused:#}");
    let refused = Alertmanager::start("route: {receiver: nobody}\n").await.unwrap_err();
    assert!(format!("{refused:#}").contains("nobody"), "{refused:#}");
}
