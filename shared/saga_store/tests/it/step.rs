//! Each cause is answered once, and each published event is journalled.

use messaging::StepError;
use saga_store::AnswerError;

use crate::lab::{Answered, Asked, Declined, Lab};

/// The error that prevented the commit.
fn defect(error: StepError) -> String {
    match error {
        StepError::Failed(error) if error.is::<AnswerError>() => error.to_string(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn an_answer_is_published_journalled_and_moves_the_saga() {
    let (lab, questions) = Lab::with_questions::<3>().await;
    let mut tx = lab.take(&questions).await.unwrap();
    let [known, unknown, late] = &*tx.deliveries() else { panic!("three are to be answered") };
    tx.advance(known, 1, &Answered { id: known.event.id }).unwrap();
    tx.refuse(unknown, 1, &Declined { id: unknown.event.id }).unwrap();
    tx.skip(late, "not needed").unwrap();
    tx.commit().await.unwrap();
    let expected = [
        (vec!["Answered.v1"], "COMPLETED Answered.v1 IN_PROGRESS"),
        (vec!["Declined.v1"], "FAILED Declined.v1 STARTED no idea"),
        (vec![], "SKIPPED Asked.v1 STARTED not needed"),
    ];
    for (question, (published, journal)) in questions.iter().zip(expected) {
        assert_eq!(lab.published(question).await, published);
        assert_eq!(lab.journal(question).await, [journal]);
    }
}

#[tokio::test]
async fn an_unanswered_delivery_cannot_be_committed() {
    let (lab, questions) = Lab::with_questions::<2>().await;
    let mut tx = lab.take(&questions).await.unwrap();
    tx.advance(&questions[0], 1, &Answered { id: questions[0].event.id }).unwrap();
    let refused = defect(tx.commit().await.unwrap_err());
    assert_eq!(refused, format!("answer has not answered {}", questions[1].meta.event_id));
    assert_eq!((lab.inbox_size().await, lab.published(&questions[0]).await.len()), (0, 0));
    assert!(lab.journal(&questions[0]).await.is_empty());
}

#[tokio::test]
async fn a_deferred_delivery_delays_no_other() {
    let (lab, [bad, good]) = Lab::with_questions().await;
    for taken in 1..=2 {
        let mut tx = lab.take(&[bad.clone(), good.clone()]).await.unwrap();
        for question in tx.deliveries().iter() {
            match question.event.id == bad.event.id {
                true => tx.defer(question, StepError::Poison("unreadable".into())),
                false => tx.advance(question, 1, &Answered { id: good.event.id }).unwrap(),
            }
        }
        tx.commit().await.unwrap();
        assert_eq!(lab.inbox_size().await, 1, "taken {taken} times");
    }
    assert_eq!((lab.published(&good).await.len(), lab.journal(&bad).await.len()), (1, 0));
}

#[tokio::test]
async fn a_delivery_answered_twice_cannot_be_committed() {
    let (lab, [question]) = Lab::with_questions().await;
    let mut tx = lab.take(std::slice::from_ref(&question)).await.unwrap();
    tx.refuse(&question, 1, &Declined { id: question.event.id }).unwrap();
    tx.advance(&question, 2, &Answered { id: question.event.id }).unwrap();
    let refused = defect(tx.commit().await.unwrap_err());
    assert!(refused.contains("more than once"), "{refused}");
    assert_eq!((lab.inbox_size().await, lab.published(&question).await.len()), (0, 0));
}

#[tokio::test]
async fn only_causes_can_be_answered() {
    let (lab, [asked, other]) = Lab::with_questions().await;
    let mut tx = lab.take(std::slice::from_ref(&asked)).await.unwrap();
    for question in [&asked, &other] {
        tx.advance(question, 1, &Answered { id: question.event.id }).unwrap();
    }
    let refused = defect(tx.commit().await.unwrap_err());
    assert!(refused.contains(&other.meta.event_id.to_string()), "{refused}");
}

#[tokio::test]
async fn a_duplicate_is_not_answered() {
    let (lab, [question]) = Lab::with_questions().await;
    let twice = [question.clone(), question.clone()];
    let mut tx = lab.take(&twice).await.unwrap();
    assert_eq!(tx.deliveries().len(), 1);
    tx.advance(&question, 1, &Answered { id: question.event.id }).unwrap();
    tx.commit().await.unwrap();
    let tx = lab.take(&twice).await.unwrap();
    assert!(tx.deliveries().is_empty());
    tx.commit().await.unwrap();
    assert_eq!(lab.published(&question).await, ["Answered.v1"]);
}

#[tokio::test]
async fn a_late_delivery_is_skipped_automatically() {
    let (lab, [late, timely]) = Lab::with_questions().await;
    lab.time_out(&late).await;
    let mut tx = lab.take(&[late.clone(), timely.clone()]).await.unwrap();
    assert_eq!(tx.deliveries().len(), 1);
    tx.advance(&timely, 1, &Answered { id: timely.event.id }).unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.journal(&late).await, ["SKIPPED Asked.v1 TIMED_OUT the saga does not move forward any more"]);
}

#[tokio::test]
async fn an_illegal_answer_publishes_nothing() {
    let (lab, [question]) = Lab::with_questions().await;
    let mut tx = lab.take(std::slice::from_ref(&question)).await.unwrap();
    let illegal = tx.undone(&question, 1, &Answered { id: question.event.id });
    assert!(matches!(illegal, Err(StepError::Failed(_))), "{illegal:?}");
    let refusal = tx.advance(&question, 1, &Declined { id: question.event.id });
    assert!(matches!(refusal, Err(StepError::Failed(_))), "{refusal:?}");
    let foreign = tx.advance(&question, 1, &Asked { id: question.event.id });
    assert!(matches!(foreign, Err(StepError::Failed(_))), "{foreign:?}");
    tx.skip(&question, "neither is possible").unwrap();
    tx.commit().await.unwrap();
    assert!(lab.published(&question).await.is_empty());
    assert_eq!(lab.journal(&question).await, ["SKIPPED Asked.v1 STARTED neither is possible"]);
}

#[tokio::test]
async fn an_event_of_no_saga_is_poison() {
    let (lab, [mut question]) = Lab::with_questions().await;
    question.meta.published_in.saga = None;
    let refused = lab.take(&[question]).await;
    assert!(matches!(refused, Err(StepError::Poison(_))), "{refused:?}");
}
