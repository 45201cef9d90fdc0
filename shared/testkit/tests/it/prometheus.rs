use testkit::Monitor;

#[tokio::test]
async fn both_servers_start_with_their_configuration() {
    let receiver = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n";
    let (one, other) = (Monitor::alertmanager(receiver).await.unwrap(), Monitor::alertmanager(receiver).await.unwrap());
    assert_ne!(one.url(), other.url());
    let prometheus = Monitor::prometheus("global: {scrape_interval: 1s}\n").await.unwrap();
    assert!(prometheus.url().starts_with("http://127.0.0.1:"));
}

#[tokio::test]
async fn a_refused_configuration_is_reported() {
    let refused = Monitor::prometheus("globe: {}\n").await.unwrap_err();
    assert!(format!("{refused:#}").contains("globe"), "{refused:#}");
    let refused = Monitor::alertmanager("route: {receiver: nobody}\n").await.unwrap_err();
    assert!(format!("{refused:#}").contains("nobody"), "{refused:#}");
}
