//! The suite for agents: the Model Context Protocol, at `/mcp` of the console and over stdin and stdout (`console mcp`). A tool is a
//! row of the table of operations, or reads what the console knows itself: what needs attention, orders, journeys, the audit,
//! actions, metrics; or begins, answers and stops a run.

mod http;
mod own;
mod running;
mod stdio;

use std::sync::Arc;

use contracts::SERVICES;
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
    operations::{Arguments, At, FieldKind, IDEMPOTENCY_KEY, OPERATIONS, Operation, Refusal, Who, operation, perform},
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

/// An argument of a tool.
pub(crate) struct Argument {
    name: &'static str,
    about: &'static str,
    kind: FieldKind,
    required: bool,
    /// The values that there are, if it is not free.
    one_of: &'static [&'static str],
}

impl Argument {
    const fn text(name: &'static str, about: &'static str, required: bool) -> Self {
        Argument { name, about, kind: FieldKind::Text, required, one_of: &[] }
    }

    const fn number(name: &'static str, about: &'static str) -> Self {
        Argument { name, about, kind: FieldKind::Number, required: false, one_of: &[] }
    }

    fn service() -> Self {
        const NAMES: [&str; SERVICES.len()] = {
            let mut names = [""; SERVICES.len()];
            let mut at = 0;
            while at < names.len() {
                names[at] = SERVICES[at].0;
                at += 1;
            }
            names
        };
        Argument { one_of: &NAMES, ..Argument::text("service", "The service", true) }
    }
}

fn arguments_of(operation: &Operation) -> Vec<Argument> {
    let mut all = Vec::new();
    if operation.at == At::Any {
        all.push(Argument::service());
    }
    if let Some(key) = operation.key() {
        all.push(Argument::text(key, "What it concerns: its id, or a step's name", true));
    }
    for field in operation.fields {
        let required = operation.needs(field.name);
        all.push(Argument { required, kind: field.kind, ..Argument::text(field.name, field.about, false) });
    }
    if operation.acts() {
        all.push(Argument::text("reason", "Why, in a line; it is recorded", true));
    }
    if operation.destroys {
        all.push(Argument::text("confirm", "What the first call answered", false));
    }
    if operation.is_keyed() {
        all.push(Argument::text(
            IDEMPOTENCY_KEY,
            "Your own key: with the same one, a repeated call has one effect",
            true,
        ));
    }
    all
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

/// The given arguments as texts. An unknown or empty one is refused: left out, it could make an operation wider than its caller
/// meant.
fn arguments(given: JsonObject, known: &[Argument]) -> Result<Arguments, Refusal> {
    let mut arguments = Arguments::new();
    for (name, value) in given {
        let Some(argument) = known.iter().find(|argument| argument.name == name) else {
            return Err(Refusal::Argument(format!("there is no argument {name}")));
        };
        let text = match (value, argument.kind) {
            (Value::String(text), _) if !text.trim().is_empty() => text,
            (Value::Number(number), FieldKind::Number) => number.to_string(),
            _ => {
                return Err(Refusal::Argument(format!(
                    "{name} is empty, or has the wrong type: leave out what is not meant"
                )));
            }
        };
        arguments.insert(name, text);
    }
    let missing = known.iter().find(|argument| argument.required && !arguments.contains_key(argument.name));
    missing.map_or(Ok(arguments), |argument| Err(Refusal::Argument(format!("{} is missing", argument.name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(value: Value) -> JsonObject {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn an_unknown_a_missing_and_a_wrong_argument_are_refused() {
        let arm = arguments_of(operation("arm_fault").expect("known"));
        let fault = json!({"service": "order", "point": "in_step", "kind": "error", "reason": "r", "first": 2});
        let parsed = arguments(given(fault.clone()), &arm).expect("valid");
        assert_eq!(parsed["first"], "2");
        let refused = |name: &str, value: Value| {
            let mut fault = fault.clone();
            fault[name] = value;
            arguments(given(fault), &arm).expect_err("refused").to_string()
        };
        assert_eq!(refused("scope", json!({"order_id": "x"})), "there is no argument scope");
        for empty in [Value::Null, json!(""), json!(" "), json!(["x"])] {
            let why = "order_id is empty, or has the wrong type: leave out what is not meant";
            assert_eq!(refused("order_id", empty), why);
        }
        let fault = given(json!({"service": "order", "point": "in_step", "kind": "error"}));
        assert_eq!(arguments(fault, &arm).expect_err("refused").to_string(), "reason is missing");
    }

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
