//! `console mcp`: the tools over stdin and stdout, for an agent that starts its server itself.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use bootstrap::CancellationToken;
use rmcp::ServiceExt as _;

use super::Tools;
use crate::{
    audit::Stores,
    desk::{Desk, Tokens},
    operations::{Role, Who},
    runs::Runs,
    suite::Addresses,
    watch::{Board, Rounds},
};

/// How often the suite is audited meanwhile.
const AUDIT_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub struct McpArgs {
    #[command(flatten)]
    stores: Stores,
    #[command(flatten)]
    addresses: Addresses,
    /// What its caller may do
    #[arg(long, value_enum, default_value = "viewer")]
    role: Role,
    /// Who calls, in the records of actions
    #[arg(long, default_value = "mcp")]
    actor: String,
    /// The folder of the suite's scripts, with which runs start and stop processes
    #[arg(long, value_name = "DIR")]
    scripts: Option<PathBuf>,
}

/// Serves until stdin ends.
pub async fn command(args: &McpArgs) -> anyhow::Result<bool> {
    let tokens = Tokens::new(&args.addresses.admin_token, None, None);
    let (board, stop) = (Board::default(), CancellationToken::new());
    let (runs, keeper) = Runs::new(args.scripts.clone(), &args.stores, &args.addresses);
    let tools = Tools {
        desk: Desk::new(&args.stores.database_url, args.addresses.clone(), tokens, runs, stop.clone())?,
        board: board.clone(),
        who: Who::new(&args.actor, args.role).context("an actor has 1 to 100 printable ASCII characters")?,
    };
    let rounds = Rounds {
        stores: args.stores.clone(),
        gateway_url: args.addresses.gateway_url.clone(),
        every: AUDIT_EVERY,
        board,
        served: None,
        stop: stop.clone(),
    };
    let serve = async {
        let served = async { anyhow::Ok(tools.serve(rmcp::transport::stdio()).await?.waiting().await?) }.await;
        stop.cancel();
        served
    };
    let (served, (), ()) = tokio::join!(serve, rounds.run(), keeper.run(stop.clone()));
    served.map(|_| true)
}
