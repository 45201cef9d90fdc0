//! The suite for agents: the Model Context Protocol, at `/mcp` of the console and over stdin and stdout (`console mcp`). A tool is a
//! row of the table of operations, or reads what the console knows itself: what needs attention, orders, journeys, the audit,
//! actions, metrics; or begins, answers and stops a run.

mod http;
mod own;
mod running;
mod stdio;

use std::sync::Arc;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, JsonObject, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
    },
    service::RequestContext,
};
use serde_json::{Value, json};

use crate::{
    desk::Desk,
    operations::{
        Argument, FieldKind, OPERATIONS, Operation, Refusal, Who, arguments, arguments_of, operation, perform,
    },
    watch::Board,
};

pub(crate) use http::routes;
pub use stdio::{McpArgs, command};

const INSTRUCTIONS: &str = "A shop of services that react to each other's events: a choreographed \
    saga per order, with compensation. Begin with `attention`, which says what is stuck or not in order now, and why; then `audit` and \
    `find_orders`. `order_journey` and `explain_order` say what happened to one order and what it waits for. Tools that act want a \
    reason, which is recorded. A tool whose effect cannot be undone is called twice: the first call changes nothing and answers with \
    the `confirm` that the second one gives. `run` plays a scenario or a drill, or audits after everything in flight has ended; \
    `inspect_run` follows it.";

/// The tools for one caller.
#[derive(Clone)]
pub(crate) struct Tools {
    desk: Desk,
    board: Board,
    who: Who,
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let mut config = ServerConfig::default();
        config.capabilities = ServerCapabilities::builder().enable_tools().build();
        config.server_info = Implementation::new("pas-de-trois", env!("CARGO_PKG_VERSION"));
        config.instructions = Some(INSTRUCTIONS.to_owned());
        config
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let own = own::READINGS.iter().map(|reading| tool(reading.name, reading.about, &reading.arguments(), reads()));
        let allowed = OPERATIONS.iter().filter(|operation| operation.role <= self.who.role);
        let running = running::TOOLS.iter().filter(|_| running::ROLE <= self.who.role).map(|of| of.tool());
        Ok(ListToolsResult::with_all_items(own.chain(allowed.map(tool_of)).chain(running).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let given = request.arguments.unwrap_or_default();
        let outcome = if let Some(reading) = own::reading(&request.name) {
            match arguments(given, &reading.arguments()) {
                Ok(arguments) => reading.answer(&self.desk, &self.board, &arguments).await,
                Err(refusal) => Err(refusal),
            }
        } else if let Some(running) = running::find(&request.name) {
            arguments(given, &running.arguments())
                .and_then(|arguments| running.perform(&self.desk, &self.who, &arguments))
        } else if let Some(operation) = operation(&request.name) {
            match arguments(given, &arguments_of(operation)) {
                Ok(arguments) => {
                    perform(&self.desk.suite, &self.desk.confirmations, operation, &arguments, &self.who).await
                }
                Err(refusal) => Err(refusal),
            }
        } else {
            return Err(ErrorData::invalid_params(format!("there is no tool {}", request.name), None));
        };
        Ok(answer(outcome).into())
    }
}

/// The result of a tool: always an object.
fn answer(outcome: Result<Value, Refusal>) -> CallToolResult {
    match outcome {
        Ok(answer @ Value::Object(_)) => CallToolResult::structured(answer),
        Ok(answer) => CallToolResult::structured(json!({ "answer": answer })),
        Err(Refusal::Unconfirmed(token, would_be_sent)) => CallToolResult::structured(json!({
            "done": false,
            "would_be_sent": would_be_sent,
            "what": "Nothing was changed. It cannot be undone: to do it, call again with the same arguments and this confirm.",
            "confirm": token,
        })),
        Err(refusal) => CallToolResult::structured_error(json!({ "refused": refusal.to_string() })),
    }
}

fn reads() -> ToolAnnotations {
    ToolAnnotations::new().read_only(true).open_world(false)
}

fn tool_of(operation: &'static Operation) -> Tool {
    let hints = if operation.acts() {
        let hints = ToolAnnotations::new().read_only(false).destructive(operation.destroys).open_world(false);
        hints.idempotent(operation.is_idempotent())
    } else {
        reads()
    };
    tool(operation.name, operation.about, &arguments_of(operation), hints)
}

fn tool(name: &'static str, about: &'static str, arguments: &[Argument], hints: ToolAnnotations) -> Tool {
    let property = |argument: &Argument| {
        let kind = match argument.kind {
            FieldKind::Text => "string",
            FieldKind::Number => "integer",
        };
        let mut schema = json!({ "type": kind, "description": argument.about });
        if !argument.one_of.is_empty() {
            schema["enum"] = json!(argument.one_of);
        }
        (argument.name.to_owned(), schema)
    };
    let required: Vec<_> =
        arguments.iter().filter(|argument| argument.required).map(|argument| argument.name).collect();
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(arguments.iter().map(property).collect()));
    schema.insert("required".to_owned(), json!(required));
    schema.insert("additionalProperties".to_owned(), json!(false));
    Tool::new(name, about, Arc::new(schema)).with_annotations(hints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_name_of_its_own_and_a_description() {
        let own = own::READINGS.iter().map(|r| r.name).chain(running::TOOLS.iter().map(|tool| tool.name));
        let mut names: Vec<_> = OPERATIONS.iter().map(|o| o.name).chain(own).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(OPERATIONS.iter().all(|operation| operation.about.ends_with('.')));
    }
}
