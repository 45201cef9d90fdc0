//! What a run prints: its latest lines.

use std::collections::VecDeque;

use serde::{Serialize, Serializer, ser::SerializeStruct as _};

/// How many lines are kept.
const LINES: usize = 2_000;
/// In bytes; a longer line is cut.
const LINE_LENGTH: usize = 2_000;

#[derive(Debug, Clone, Default)]
pub(crate) struct Output {
    lines: VecDeque<String>,
    /// How many earlier lines were left out.
    pub(crate) left_out: u64,
    /// The line that has no end yet, such as a question.
    unfinished: Vec<u8>,
}

impl Output {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' || self.unfinished.len() == LINE_LENGTH {
                self.end_line();
            }
            if *byte != b'\n' {
                self.unfinished.push(*byte);
            }
        }
    }

    /// A line of the console's own.
    pub(super) fn note(&mut self, note: &str) {
        if !self.unfinished.is_empty() {
            self.end_line();
        }
        self.push(format!("[console] {note}\n").as_bytes());
    }

    fn end_line(&mut self) {
        let line = text(&std::mem::take(&mut self.unfinished));
        if self.lines.len() == LINES {
            self.lines.pop_front();
            self.left_out += 1;
        }
        self.lines.push_back(line);
    }

    pub(crate) fn text(&self) -> String {
        let mut text = self.lines.iter().flat_map(|line| [line, "\n"]).collect::<String>();
        text.push_str(&self::text(&self.unfinished));
        text
    }
}

/// Without colours' and other control characters.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|c| *c == '\t' || !c.is_control()).collect()
}

impl Serialize for Output {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Output", 2)?;
        fields.serialize_field("output", &self.text())?;
        fields.serialize_field("lines_left_out", &self.left_out)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_arrive_in_any_pieces_and_the_last_may_be_unfinished() {
        let mut output = Output::default();
        for piece in ["st", "ory\r\n\nwhich \u{1b}serv", "ice? "] {
            output.push(piece.as_bytes());
        }
        assert_eq!(output.text(), "story\n\nwhich service? ");
        output.note("it ended");
        assert_eq!(output.text(), "story\n\nwhich service? \n[console] it ended\n");
    }

    #[test]
    fn only_the_latest_lines_are_kept_and_long_ones_are_cut() {
        let mut output = Output::default();
        for n in 0..LINES + 7 {
            output.push(format!("line {n}\n").as_bytes());
        }
        assert_eq!((output.lines.len(), output.left_out), (LINES, 7));
        assert!(output.text().starts_with("line 7\n"));
        output.push(&vec![b'x'; LINES * LINE_LENGTH * 2]);
        assert_eq!(output.lines.len(), LINES);
        assert!(output.text().len() <= (LINES + 1) * (LINE_LENGTH + 1));
    }
}
