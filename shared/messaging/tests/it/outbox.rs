//! Committed events are published, and no others.

use messaging::{Context, PublishError};
use uuid::Uuid;

use crate::house::{House, OPEN_DOOR, Rang};

#[tokio::test]
async fn a_committed_event_is_published_once() {
    let house = House::start().await;
    house.ring(&["friend", "neighbour"]).await;
    assert_eq!((house.count("outbox").await, house.count("outbox_published").await), (0, 2));
    house.relay().await;
    assert_eq!(house.streamed().await, 2);
}

#[tokio::test]
async fn a_rolled_back_event_is_never_published() {
    let house = House::start().await;
    let mut work = house.outbox.begin().await.unwrap();
    let ring = Rang { door: Uuid::now_v7(), by: "friend".to_owned() };
    work.publish_side_event(&Context::background("test"), 1, &ring).unwrap();
    work.rollback().await.unwrap();
    house.relay().await;
    assert_eq!((house.count("outbox").await, house.streamed().await), (0, 0));
}

#[tokio::test]
async fn a_step_publishes_only_the_events_it_lists() {
    let house = House::start().await;
    let mut work = house.outbox.begin().await.unwrap();
    let ring = Rang { door: Uuid::now_v7(), by: "friend".to_owned() };
    let refused = work.publish(&OPEN_DOOR, &Context::background("test"), 1, &ring);
    assert!(matches!(refused, Err(PublishError::NotEmitted { step: "open_door", event: "Rang" })), "{refused:?}");
}
