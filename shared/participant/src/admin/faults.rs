//! The faults of this service, armed in all its replicas. The routes exist only where faults are enabled.

use std::collections::{BTreeMap, BTreeSet};

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
};
use bootstrap::{Json, JsonResult, Path, Problem};
use faults::{Armed, FaultPoint, FaultSpec, Kind};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{Shared, actor};
use crate::{
    Participant,
    replicas::{Answers, Question},
};

pub(super) fn routes() -> OpenApiRouter<std::sync::Arc<super::AdminState>> {
    OpenApiRouter::new().routes(routes!(list_faults, arm_fault, disarm_all_faults)).routes(routes!(disarm_fault))
}

/// The armed faults, and the points where faults can be armed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FaultList {
    items: Vec<HeldFault>,
    points: Vec<PointBody>,
}

/// An armed fault, and the replicas that hold it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeldFault {
    /// Passes and hits are those of all replicas together.
    #[serde(flatten)]
    fault: Armed,
    /// The replicas that have confirmed that they hold it.
    replicas: BTreeSet<String>,
    /// Replicas that should hold it and have not confirmed in time: they are not connected to the broker, faults are not enabled
    /// in them, or they have died within the last seconds. A living one loads it within a second.
    missing: BTreeSet<String>,
}

/// A point where faults can be injected.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PointBody {
    point: FaultPoint,
    about: &'static str,
    kinds: &'static [Kind],
}

/// The result of disarming.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Disarmed {
    disarmed: usize,
    /// Replicas that have not confirmed that they are disarmed. A living one disarms within a second.
    missing: BTreeSet<String>,
}

/// The armed faults of all replicas
#[utoipa::path(get, path = "/api/admin/faults", tag = "administration",
    responses((status = 200, description = "The armed faults", body = FaultList)))]
pub(crate) async fn list_faults(State(admin): Shared) -> Json<FaultList> {
    let points = FaultPoint::ALL.iter().map(|p| PointBody { point: *p, about: p.about(), kinds: p.kinds() });
    let participant = &admin.participant;
    let answers = participant.replicas.ask(Question::ListFaults, participant.faults.armed()).await;
    let mut items = merged(answers);
    let shared = items.iter().filter(|held| held.fault.shared).map(|held| held.fault.id);
    for row in participant.shared_faults.load(shared).await.unwrap_or_default() {
        let same = |held: &&mut HeldFault| held.fault.shared && held.fault.id == row.fault_id.unsigned_abs();
        let Some(held) = items.iter_mut().find(same) else { continue };
        let was_done = held.fault.is_done();
        (held.fault.passes, held.fault.hits) = (row.passes.unsigned_abs(), row.hits.unsigned_abs());
        if !was_done && held.fault.is_done() {
            // Its hits are exhausted, and the replicas that listed it do not know it yet.
            held.replicas.clear();
        }
    }
    items.retain(|held| !held.replicas.is_empty());
    Json(FaultList { items, points: points.collect() })
}

/// Arm a fault in every replica; it expires automatically, after 60 seconds by default
///
/// `first`, `every`, `skip` and `probability` count the passes of all replicas together while the database can be
/// reached; otherwise each replica counts separately. A replica that starts later loads the fault for its remaining time.
#[utoipa::path(post, path = "/api/admin/faults", tag = "administration", request_body = FaultSpec,
    responses((status = 201, description = "The armed fault, and the replicas that hold it", body = HeldFault),
        (status = 422, description = "It cannot be armed", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn arm_fault(
    State(admin): Shared,
    headers: HeaderMap,
    Json(spec): Json<FaultSpec>,
) -> Result<(StatusCode, Json<HeldFault>), Problem> {
    let participant = &admin.participant;
    if let Some(step) = spec.scope.step.as_deref() {
        let steps = admin.steps().into_iter().chain(participant.coordinated());
        let known: BTreeSet<&str> = steps.map(|known| known.name).collect();
        if !known.contains(&step) {
            let detail = format!(
                "This service has no step {step:?}. It has {}.",
                known.into_iter().collect::<Vec<_>>().join(", ")
            );
            return Err(Problem::invalid("/scope/step", detail));
        }
    }
    let fault = participant.faults.draft(spec, &actor(&headers));
    let fault = fault.map_err(|refused| Problem::unprocessable(format!("Nothing is armed: {refused}.")))?;
    participant.shared_faults.arm(&fault).await;
    let Answers { given, mut missing } =
        participant.replicas.ask(Question::HoldFault(Box::new(fault.clone())), true).await;
    let (replicas, others): (Vec<_>, Vec<_>) = given.into_iter().partition(|(_, held)| *held);
    missing.extend(others.into_iter().map(|(replica, _)| replica));
    let replicas = replicas.into_iter().map(|(replica, _)| replica).collect();
    Ok((StatusCode::CREATED, Json(HeldFault { fault, replicas, missing })))
}

/// Disarm every fault in every replica
#[utoipa::path(delete, path = "/api/admin/faults", tag = "administration",
    responses((status = 200, description = "How many there were", body = Disarmed)))]
pub(crate) async fn disarm_all_faults(State(admin): Shared) -> Json<Disarmed> {
    Json(disarm_in_all(&admin.participant, None).await)
}

/// Disarm a fault in every replica
#[utoipa::path(delete, path = "/api/admin/faults/{id}", tag = "administration",
    params(("id" = u64, Path, description = "The fault's id")),
    responses((status = 200, description = "It is disarmed", body = Disarmed),
        (status = 404, description = "No such fault is armed", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn disarm_fault(State(admin): Shared, Path(id): Path<u64>) -> JsonResult<Disarmed> {
    match disarm_in_all(&admin.participant, Some(id)).await {
        Disarmed { disarmed: 0, .. } => Err(Problem::not_found("No such fault is armed.")),
        disarmed => Ok(Json(disarmed)),
    }
}

async fn disarm_in_all(participant: &Participant, id: Option<u64>) -> Disarmed {
    let answers = participant.replicas.ask(Question::DisarmFaults(id), disarm(participant, id)).await;
    let missing = answers.missing.clone();
    let disarmed = merged(answers);
    let shared = disarmed.iter().filter(|held| held.fault.shared).map(|held| held.fault.id);
    participant.shared_faults.disarm(shared).await;
    Disarmed { disarmed: disarmed.len(), missing }
}

/// Disarms one fault of this replica, or all; returns the disarmed ones.
pub(super) fn disarm(participant: &Participant, id: Option<u64>) -> Vec<Armed> {
    let armed = participant.faults.armed().into_iter().filter(|armed| id.is_none_or(|id| armed.id == id));
    armed.filter(|armed| participant.shared_faults.disarm_here(armed.id)).collect()
}

/// Merges the replicas' lists of faults. A shared fault is one entry, which all replicas should hold; a fault of a process's own
/// plan is an entry of that process. A fault whose hits are exhausted is held by the replicas in which it still holds a pass.
fn merged(answers: Answers<Vec<Armed>>) -> Vec<HeldFault> {
    let Answers { given, missing: silent } = answers;
    let all: BTreeSet<String> = given.iter().map(|(replica, _)| replica).chain(&silent).cloned().collect();
    type Holders = Vec<(String, Armed)>;
    let mut faults = BTreeMap::<(u64, Option<String>), Holders>::new();
    for (replica, listed) in given {
        for armed in listed {
            let key = (armed.id, (!armed.shared).then(|| replica.clone()));
            faults.entry(key).or_default().push((replica.clone(), armed));
        }
    }
    let one = |holders: Holders| {
        let done = holders.iter().any(|(_, armed)| armed.is_done());
        let passes = holders.iter().map(|(_, armed)| armed.passes).max().unwrap_or_default();
        let hits = holders.iter().map(|(_, armed)| armed.hits).sum();
        let (_, first) = holders.first().cloned()?;
        let holders = holders.into_iter().filter(|(_, armed)| !done || armed.is_done());
        let replicas: BTreeSet<String> = holders.map(|(replica, _)| replica).collect();
        let expected = if first.shared && !done { &all } else { &replicas };
        let missing = expected.difference(&replicas).cloned().collect();
        Some(HeldFault { fault: Armed { passes, hits, ..first }, replicas, missing })
    };
    faults.into_values().filter_map(one).collect()
}
