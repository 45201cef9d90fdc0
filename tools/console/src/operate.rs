//! `console operate`: one operation of the table, from a terminal or a script. What it prints is the service's answer, as JSON.

use anyhow::Context as _;
use serde_json::{Map, Value};

use crate::{
    operations::{
        Argument, Confirmations, OPERATIONS, Operation, Refusal, Role, Who, arguments, arguments_of, operation, perform,
    },
    say,
    suite::{Addresses, Suite},
};

#[derive(Debug, clap::Args)]
pub struct OperateArgs {
    #[command(flatten)]
    addresses: Addresses,
    /// Who acts, in the records of actions
    #[arg(long, env = "USER", default_value = "admin")]
    actor: String,
    /// Does what cannot be undone; without it, such an operation only says what would be sent
    #[arg(long)]
    yes: bool,
    /// The operation; all are listed without one
    operation: Option<String>,
    /// What it wants, and `reason=` where it acts
    #[arg(value_name = "NAME=VALUE", value_parser = given)]
    arguments: Vec<(String, String)>,
}

fn given(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("an argument is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// `Ok(false)` when the operation was not carried out.
pub async fn command(args: &OperateArgs) -> anyhow::Result<bool> {
    let Some(name) = &args.operation else {
        OPERATIONS.iter().for_each(|operation| say(usage(operation)));
        return Ok(true);
    };
    let operation =
        operation(name).with_context(|| format!("there is no operation {name}; without one, all are listed"))?;
    let who = Who::new(&args.actor, Role::Admin).context("an actor has 1 to 100 printable ASCII characters")?;
    let suite = Suite::new(args.addresses.clone()).context("no HTTP client")?;
    match carry_out(&suite, operation, &args.arguments, &who, args.yes).await {
        Ok(answer) => {
            say(format!("{answer:#}"));
            Ok(true)
        }
        Err(Refusal::Unconfirmed(_, would_be_sent)) => {
            say(format!("{would_be_sent:#}"));
            eprintln!("console: it cannot be undone, so nothing was sent; --yes does it");
            Ok(false)
        }
        Err(refusal) => {
            eprintln!("console: {refusal}\n{}", usage(operation));
            Ok(false)
        }
    }
}

async fn carry_out(
    suite: &Suite,
    operation: &'static Operation,
    named: &[(String, String)],
    who: &Who,
    yes: bool,
) -> Result<Value, Refusal> {
    let confirmations = Confirmations::default();
    let mut once = Map::new();
    for (name, value) in named {
        if once.insert(name.clone(), Value::from(value.as_str())).is_some() {
            return Err(Refusal::Argument(format!("{name} is given twice")));
        }
    }
    let mut given = arguments(once, &arguments_of(operation))?;
    given.remove("confirm");
    match perform(suite, &confirmations, operation, &given, who).await {
        Err(Refusal::Unconfirmed(token, _)) if yes => {
            given.insert("confirm".to_owned(), token);
            perform(suite, &confirmations, operation, &given, who).await
        }
        answer => answer,
    }
}

/// In one line, with what it wants; in brackets what may be left out.
fn usage(operation: &Operation) -> String {
    let wants = |Argument { name, required, one_of, .. }: &Argument| {
        let value = if one_of.is_empty() { name.to_uppercase() } else { one_of.join("|") };
        if *required { format!(" {name}={value}") } else { format!(" [{name}={value}]") }
    };
    let wanted = arguments_of(operation);
    let wanted: String = wanted.iter().filter(|argument| argument.name != "confirm").map(wants).collect();
    format!("{}{wanted}\n    {}", operation.name, operation.about)
}
