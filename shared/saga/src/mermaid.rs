//! The saga's diagram, generated from its table.

use std::fmt::Write;

use crate::{Kind, SagaDefinition, Step, Trigger};

impl SagaDefinition {
    /// A Mermaid flowchart: steps are boxes in their service's lane, events are the arrows.
    pub fn to_mermaid(&self) -> String {
        let mut out = String::from("flowchart LR\n");
        let mut lanes = Vec::new();
        for lane_name in self.steps.iter().map(|s| lane(s)) {
            if lanes.contains(&lane_name) {
                continue;
            }
            lanes.push(lane_name);
            let _ = writeln!(out, "    subgraph {lane_name}");
            for step in self.steps.iter().filter(|s| lane(s) == lane_name) {
                let _ = writeln!(out, "        {}", node(step));
            }
            out.push_str("    end\n");
        }
        for step in self.steps {
            self.draw_arrows(step, &mut out);
        }
        out
    }

    fn draw_arrows(&self, step: &Step, out: &mut String) {
        match step.on {
            Trigger::Http => {
                let _ = writeln!(out, "    client((client)) --> {}", step.name);
            }
            Trigger::Deadline => {
                let _ = writeln!(out, "    clock((deadline)) --> {}", step.name);
            }
            Trigger::Event(_) | Trigger::Command => {}
        }
        for event in step.emits {
            for reader in self.steps.iter().filter(|s| s.on == Trigger::Event(*event)) {
                let _ = writeln!(out, "    {} -- {} --> {}", step.name, event.name, reader.name);
            }
            if self.terminal.contains(event) {
                let _ = writeln!(out, "    {} -- {} --> done_{}((\" \"))", step.name, event.name, step.name);
            }
        }
    }
}

fn lane(step: &Step) -> &'static str {
    step.service.map_or("any", |s| s.0)
}

fn node(step: &Step) -> String {
    let name = step.name;
    match step.kind {
        Kind::Compensatable { .. } => format!("{name}[\"{} {name}\"]", step.number),
        Kind::Retriable if step.number > 0 => format!("{name}[\"{} {name}\"]", step.number),
        Kind::Pivot => format!("{name}{{{{\"{} {name}\"}}}}", step.number),
        Kind::Compensation => format!("{name}([\"{name}\"])"),
        Kind::Retriable | Kind::Cancellation | Kind::Projection => format!("{name}[\"{name}\"]"),
    }
}
