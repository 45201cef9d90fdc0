//! The orchestrated twin of the saga under the model checker: two replicas of its coordinator, of which one may be a zombie,
//! commands that are lost, repeated and late, a crash between every two effects, a customer who cancels at any time.
//!
//! The decisions are those of production: `orchestrator::Orchestration`, `order::domain`, `payment::domain`. Inventory's
//! statements are modelled by their effect: an order has one reservation, which the first command writes. What a replica holds in
//! memory is lost in a crash; a participant goes on with a command whose sender is gone.

use contracts::orchestrated as table;
use inventory::domain::ReservationStatus;
use orchestrator::{Effect, Next, Orchestration, Reply, Turn};
use order::domain::{self, CancelRequest, Ending, OrderStatus};
use payment::domain::{
    Answer, Payment, Plan, Status as PaymentStatus, apply_charge_answer, apply_refund_answer, plan_charge, plan_refund,
};
use saga::{SagaState, Status, Step, Transition};
use stateright::{Model, Property};

use crate::gateway::Key;

const AMOUNT: i64 = 10;
/// Attempts after which the coordinator gives up, until an operator resumes.
const MOST_ATTEMPTS: u16 = 1;

/// Names of the properties that tests refer to.
pub mod names {
    pub const ENDED: &str = "at rest, every order is confirmed and completed, or cancelled and compensated";
    pub const CONSERVED: &str = "at rest, stock and money are held by a confirmed order and no other";
    pub const ONCE: &str = "an order is charged once at most";
    pub const UNDONE: &str = "a compensated order holds nothing";
    pub const LEGAL: &str = "no transition or answer is illegal";
}

/// The four commands to participants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    Reserve,
    Charge,
    Refund,
    Release,
}

impl Command {
    const ALL: [Command; 4] = [Command::Reserve, Command::Charge, Command::Refund, Command::Release];

    fn step(self) -> &'static Step {
        match self {
            Command::Reserve => &table::RESERVE_STOCK,
            Command::Charge => &table::PROCESS_PAYMENT,
            Command::Refund => &table::REFUND_PAYMENT,
            Command::Release => &table::RELEASE_STOCK,
        }
    }

    fn of(step: &Step) -> Option<Command> {
        Command::ALL.into_iter().find(|command| command.step().name == step.name)
    }
}

/// Payment's work on a command: the intent is written, the call is to be made, or answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Paying {
    Asking(payment::domain::Ask),
    Found(Option<Answer>),
}

/// What a replica of the coordinator holds in memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Replica {
    Idle,
    /// Is about to give the command.
    About(Command),
    /// Payment works on it.
    Waiting(Command, Paying),
    Answered(Command, Reply),
}

/// The state of one order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Run {
    pub good_card: bool,
    pub in_stock: bool,
    pub order: OrderStatus,
    pub saga: SagaState,
    pub attempts: u16,
    pub retries: u8,
    pub reservation: Option<ReservationStatus>,
    pub payment: Option<Payment>,
    /// At the processor; more than one only without an idempotency key.
    pub keys: Vec<Key>,
    /// The replica that drives the saga, as the database says; none when it is forgotten.
    pub holder: Option<usize>,
    pub replicas: [Replica; 2],
    /// Each may arrive once more at any later time.
    pub sent: [bool; 4],
    /// Payment's work on a command whose sender does not wait any more.
    pub orphan: Option<(Command, Paying)>,
    pub faults_left: u8,
    pub by_customer: bool,
    pub given_up: bool,
    pub taken_over: bool,
    pub wrong: bool,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The replica reads the saga, and what is next.
    Read(usize),
    /// Its command arrives.
    Arrive(usize),
    /// Payment takes the next phase of its command.
    Pay(usize),
    /// It stores the transition that the answer makes.
    Store(usize),
    TimeOut(usize),
    Retry(usize),
    Resume,
    Cancel,
    /// The step's limit passes without an answer.
    NoAnswer(usize),
    Crash(usize),
    /// The other replica takes the saga over, while this one may live.
    TakeOver,
    /// A command arrives again, or late.
    Late(Command),
    /// Payment goes on with a command whose sender is gone.
    Orphan,
}

impl Action {
    fn is_fault(self) -> bool {
        matches!(self, Action::NoAnswer(_) | Action::Crash(_) | Action::TakeOver | Action::Late(_))
    }
}

/// The guards; tests remove one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guards {
    /// The saga's state is in the database, so that another replica can go on.
    pub stored: bool,
    /// Every call to the card processor about one order has the same key.
    pub keyed: bool,
    /// An undo writes a tombstone where there is no row.
    pub tombstones: bool,
}

impl Guards {
    pub const ALL: Guards = Guards { stored: true, keyed: true, tombstones: true };
}

/// The twin within bounds.
#[derive(Debug, Clone, Copy)]
pub struct Twin {
    pub faults: u8,
    pub retries: u8,
    pub guards: Guards,
    orchestration: Orchestration,
}

impl Twin {
    /// None when the table lacks a step.
    pub fn new(faults: u8, retries: u8, guards: Guards) -> Option<Self> {
        Some(Twin { faults, retries, guards, orchestration: Orchestration::of(&table::SAGA)? })
    }

    fn is_at_rest(&self, run: &Run) -> bool {
        let mut actions = Vec::new();
        self.actions(run, &mut actions);
        actions.into_iter().all(|action| action.is_fault() || action == Action::Cancel)
    }

    /// Records a turn, with its effect on the order.
    fn record(&self, run: &mut Run, turn: Turn) {
        for entry in turn.entries {
            run.transition(entry.transition);
        }
        match turn.effect {
            Effect::Nothing => {}
            Effect::Confirm => run.end(domain::confirm(run.order, Some(Status::InProgress)), OrderStatus::Confirmed),
            Effect::Cancel { .. } => {
                run.end(domain::cancel(run.order, Some(Status::InProgress)), OrderStatus::Cancelled);
            }
        }
    }

    /// A command arrives at its participant: done at once, or begun by payment.
    fn arrive(&self, run: &mut Run, command: Command) -> Result<Reply, Paying> {
        run.sent[command as usize] = true;
        match command {
            Command::Reserve => Ok(run.reserve()),
            Command::Release => Ok(run.release(&self.guards)),
            Command::Charge => run.begin_charge(),
            Command::Refund => run.begin_refund(&self.guards),
        }
    }

    /// The next phase of payment's work; its answer when it is done.
    fn pay(&self, run: &mut Run, command: Command, paying: Paying) -> Result<Reply, Paying> {
        let asked = match paying {
            Paying::Found(answer) => return Ok(run.settle(command, answer.as_ref())),
            Paying::Asking(ask) => ask,
        };
        if !self.guards.keyed && asked == payment::domain::Ask::Charge {
            run.keys.push(Key::Fresh);
        }
        let good_card = run.good_card;
        Err(Paying::Found(run.keys.last_mut().map(|key| key.ask(&asked, good_card))))
    }
}

impl Run {
    fn new(good_card: bool, in_stock: bool, faults: u8) -> Run {
        Run {
            good_card,
            in_stock,
            order: OrderStatus::Pending,
            saga: SagaState::started(),
            attempts: 0,
            retries: 0,
            reservation: None,
            payment: None,
            keys: vec![Key::Fresh],
            holder: Some(0),
            replicas: [Replica::Idle, Replica::Idle],
            sent: [false; 4],
            orphan: None,
            faults_left: faults,
            by_customer: false,
            given_up: false,
            taken_over: false,
            wrong: false,
        }
    }

    fn transition(&mut self, transition: Transition) {
        match table::SAGA.apply(&self.saga, transition) {
            Ok(next) => self.saga = next,
            Err(_) => self.wrong = true,
        }
        self.attempts = transition.attempts(self.attempts as i16).unsigned_abs();
        self.given_up |= transition == Transition::GiveUp;
    }

    fn end(&mut self, ending: Ending, status: OrderStatus) {
        self.wrong |= ending != Ending::Apply;
        self.order = status;
    }

    fn reserve(&mut self) -> Reply {
        let decided = if self.in_stock { ReservationStatus::Reserved } else { ReservationStatus::Refused };
        match *self.reservation.get_or_insert(decided) {
            ReservationStatus::Reserved => Reply::Done,
            _ => Reply::Refused(String::new()),
        }
    }

    fn release(&mut self, guards: &Guards) -> Reply {
        self.reservation = match self.reservation {
            Some(ReservationStatus::Reserved) => Some(ReservationStatus::Released),
            None if guards.tombstones => Some(ReservationStatus::Tombstone),
            other => other,
        };
        Reply::Done
    }

    fn begin_charge(&mut self) -> Result<Reply, Paying> {
        let payment = self.payment.get_or_insert(Payment { status: PaymentStatus::Pending, cancelled: false });
        match plan_charge(Some(payment), true, AMOUNT) {
            Plan::Ask(ask) => Err(Paying::Asking(ask)),
            Plan::Known(answer) => Err(Paying::Found(Some(answer))),
            Plan::Skip(_) => Ok(self.charged()),
        }
    }

    fn begin_refund(&mut self, guards: &Guards) -> Result<Reply, Paying> {
        if self.payment.is_none() && guards.tombstones {
            self.payment = Some(Payment { status: PaymentStatus::Voided { asked: false }, cancelled: true });
        }
        let Some(payment) = &mut self.payment else { return Ok(Reply::Done) };
        payment.cancelled = true;
        match plan_refund(payment) {
            Plan::Ask(ask) => Err(Paying::Asking(ask)),
            Plan::Known(_) | Plan::Skip(_) => Err(Paying::Found(None)),
        }
    }

    /// The answer is applied to the locked payment.
    fn settle(&mut self, command: Command, answer: Option<&Answer>) -> Reply {
        let Some(payment) = &mut self.payment else { return Reply::Done };
        let settled = match (command, answer) {
            (Command::Charge, Some(answer)) => apply_charge_answer(payment, answer, true).map(|charged| charged.status),
            (Command::Charge, None) => Ok(payment.status.clone()),
            _ => apply_refund_answer(payment, answer),
        };
        match settled {
            Ok(status) => payment.status = status,
            // The command fails, and is repeated: production voids then.
            Err(_) => self.wrong = true,
        }
        if command == Command::Charge { self.charged() } else { Reply::Done }
    }

    fn charged(&self) -> Reply {
        match self.payment.as_ref().map(|payment| &payment.status) {
            Some(PaymentStatus::Captured(_)) => Reply::Done,
            _ => Reply::Refused(String::new()),
        }
    }

    fn holds_stock(&self) -> bool {
        self.reservation == Some(ReservationStatus::Reserved)
    }

    fn charges(&self) -> usize {
        self.keys.iter().filter(|key| **key == Key::Charged).count()
    }

    fn has_ended(&self) -> bool {
        matches!(
            (self.order, self.saga.status),
            (OrderStatus::Confirmed, Status::Completed) | (OrderStatus::Cancelled, Status::Compensated)
        )
    }

    /// Payment goes on with what a replica does not wait for any more.
    fn leave(&mut self, replica: usize) {
        if let Replica::Waiting(command, paying) = std::mem::replace(&mut self.replicas[replica], Replica::Idle) {
            self.orphan = Some((command, paying));
        }
    }
}

impl Model for Twin {
    type State = Run;
    type Action = Action;

    fn init_states(&self) -> Vec<Run> {
        [(true, true), (false, true), (true, false)].map(|(card, stock)| Run::new(card, stock, self.faults)).to_vec()
    }

    fn actions(&self, run: &Run, actions: &mut Vec<Action>) {
        if run.wrong {
            return;
        }
        for (at, replica) in run.replicas.iter().enumerate() {
            let holds = run.holder == Some(at);
            match replica {
                Replica::Idle if holds && matches!(self.orchestration.next(&run.saga, false), Next::Command(_)) => {
                    actions.push(Action::Read(at));
                    actions.extend(run.saga.status.moves_forward().then_some(Action::TimeOut(at)));
                    let may_retry = run.saga.status == Status::Compensating && run.retries < self.retries;
                    actions.extend(may_retry.then_some(Action::Retry(at)));
                }
                Replica::Idle => {}
                Replica::About(_) => actions.extend([Action::Arrive(at), Action::NoAnswer(at), Action::Crash(at)]),
                Replica::Waiting(..) => {
                    actions.push(Action::Pay(at));
                    // One orphan at a time bounds the world.
                    if run.orphan.is_none() {
                        actions.extend([Action::NoAnswer(at), Action::Crash(at)]);
                    }
                }
                Replica::Answered(..) => actions.extend([Action::Store(at), Action::Crash(at)]),
            }
        }
        actions.extend(run.orphan.is_some().then_some(Action::Orphan));
        actions.extend((run.saga.status == Status::Failed).then_some(Action::Resume));
        actions.extend((self.guards.stored && run.holder.is_some()).then_some(Action::TakeOver));
        let free = |command: &Command| match command {
            Command::Charge | Command::Refund => run.orphan.is_none(),
            Command::Reserve | Command::Release => true,
        };
        let sent = Command::ALL.into_iter().filter(|command| run.sent[*command as usize]);
        actions.extend(sent.filter(free).map(Action::Late));
        let cancels = domain::cancel_on_request(run.order, Some(run.saga.status), run.saga.past_pivot);
        actions.extend((!run.by_customer && cancels == CancelRequest::Apply).then_some(Action::Cancel));
        actions.retain(|action| run.faults_left > 0 || !action.is_fault());
    }

    fn next_state(&self, before: &Run, action: Action) -> Option<Run> {
        let mut run = before.clone();
        run.faults_left -= u8::from(action.is_fault());
        match action {
            Action::Read(at) => {
                let Next::Command(step) = self.orchestration.next(&run.saga, false) else { return None };
                run.replicas[at] = Replica::About(Command::of(step)?);
            }
            Action::Arrive(at) => {
                let Replica::About(command) = run.replicas[at] else { return None };
                run.replicas[at] = match self.arrive(&mut run, command) {
                    Ok(reply) => Replica::Answered(command, reply),
                    Err(paying) => Replica::Waiting(command, paying),
                };
            }
            Action::Pay(at) => {
                let Replica::Waiting(command, paying) = run.replicas[at].clone() else { return None };
                run.replicas[at] = match self.pay(&mut run, command, paying) {
                    Ok(reply) => Replica::Answered(command, reply),
                    Err(paying) => Replica::Waiting(command, paying),
                };
            }
            Action::Store(at) => {
                let Replica::Answered(command, reply) = std::mem::replace(&mut run.replicas[at], Replica::Idle) else {
                    return None;
                };
                // Another replica's saga: the transaction is rolled back.
                if run.holder == Some(at) {
                    let turn = self.orchestration.answered(&run.saga, command.step(), &reply);
                    self.record(&mut run, turn);
                }
            }
            Action::TimeOut(_) => {
                let turn = self.orchestration.timed_out(&run.saga);
                self.record(&mut run, turn);
            }
            Action::Retry(_) => {
                run.retries += 1;
                let attempts = if run.attempts >= MOST_ATTEMPTS { u16::MAX } else { run.attempts };
                let turn = self.orchestration.overdue(&run.saga, attempts);
                self.record(&mut run, turn);
            }
            Action::Resume => run.transition(self.orchestration.resumed(String::new()).transition),
            Action::Cancel => {
                run.by_customer = true;
                run.transition(Transition::Compensate { by_customer: true });
                run.order = OrderStatus::Cancelled;
                run.holder = run.holder.or(Some(0)).filter(|_| self.guards.stored);
            }
            Action::NoAnswer(at) => {
                let command = match run.replicas[at] {
                    Replica::About(command) | Replica::Waiting(command, _) => command,
                    Replica::Idle | Replica::Answered(..) => return None,
                };
                run.sent[command as usize] = true;
                run.leave(at);
                run.replicas[at] = Replica::Answered(command, Reply::None(String::new()));
            }
            Action::Crash(at) => {
                run.leave(at);
                run.holder = run.holder.filter(|_| self.guards.stored);
            }
            Action::TakeOver => {
                run.taken_over = true;
                run.holder = run.holder.map(|at| 1 - at);
            }
            Action::Late(command) => {
                if let Err(paying) = self.arrive(&mut run, command) {
                    run.orphan = Some((command, paying));
                }
            }
            Action::Orphan => {
                let (command, paying) = run.orphan.take()?;
                if let Err(paying) = self.pay(&mut run, command, paying) {
                    run.orphan = Some((command, paying));
                }
            }
        }
        Some(run)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(names::LEGAL, |_, run: &Run| !run.wrong),
            Property::always(names::ONCE, |_, run: &Run| run.charges() <= 1),
            Property::always(names::UNDONE, |_, run: &Run| {
                run.saga.status != Status::Compensated || run.charges() == 0 && !run.holds_stock()
            }),
            Property::always(names::ENDED, |twin: &Twin, run: &Run| run.has_ended() || !twin.is_at_rest(run)),
            Property::always(names::CONSERVED, |twin: &Twin, run: &Run| {
                let confirmed = run.order == OrderStatus::Confirmed;
                (run.holds_stock() == confirmed && run.charges() == usize::from(confirmed)) || !twin.is_at_rest(run)
            }),
            Property::sometimes("an order is completed by another replica", |_, run: &Run| {
                run.taken_over && run.saga.status == Status::Completed
            }),
            Property::sometimes("a refused order is compensated", |_, run: &Run| {
                !run.in_stock && run.saga.status == Status::Compensated
            }),
            Property::sometimes("a command arrives after it was undone", |_, run: &Run| {
                run.saga.status == Status::Compensated
                    && run.orphan.as_ref().is_some_and(|(c, _)| *c == Command::Charge)
            }),
            Property::sometimes("a compensation is given up, resumed and done", |_, run: &Run| {
                run.given_up && run.saga.status == Status::Compensated
            }),
        ]
    }
}
