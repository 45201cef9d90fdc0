//! Splits the data of a NATS client into frames, so that its acknowledgements can be dropped as whole frames. All other bytes
//! pass unchanged.

/// The prefix of the subjects of delivery acknowledgements, with or without a domain.
const ACKNOWLEDGEMENT: &[u8] = b"$JS.ACK.";
/// The length of the line break after each payload.
const LINE_BREAK: usize = 2;

/// The parser state of one connection. A frame is a line, followed by a payload if it publishes.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The start of a line whose end has not arrived yet.
    line: Vec<u8>,
    /// How many bytes of the last payload are outstanding, including its line break.
    payload: usize,
    /// Whether they are dropped, as their line was.
    lost: bool,
}

impl Frames {
    /// Parses the next bytes of the connection and appends the bytes that pass to `passed`. A line is held back until its end
    /// arrives, which decides whether its frame passes.
    pub(super) fn feed(&mut self, mut bytes: &[u8], without_acks: bool, passed: &mut Vec<u8>) {
        while !bytes.is_empty() {
            if self.payload > 0 {
                let (payload, rest) = bytes.split_at(self.payload.min(bytes.len()));
                self.payload -= payload.len();
                if !self.lost {
                    passed.extend_from_slice(payload);
                }
                bytes = rest;
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                self.line.extend_from_slice(bytes);
                return;
            };
            let (line, rest) = bytes.split_at(end + 1);
            self.line.extend_from_slice(line);
            bytes = rest;
            let (subject, payload) = published(&self.line).unwrap_or_default();
            self.lost = without_acks && subject.starts_with(ACKNOWLEDGEMENT);
            self.payload = payload;
            if !self.lost {
                passed.extend_from_slice(&self.line);
            }
            self.line.clear();
        }
    }
}

/// The subject that the line publishes to, and how many bytes follow; `None` for another command.
fn published(line: &[u8]) -> Option<(&[u8], usize)> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let verb = words.next()?;
    if !verb.eq_ignore_ascii_case(b"PUB") && !verb.eq_ignore_ascii_case(b"HPUB") {
        return None;
    }
    let subject = words.next()?;
    // Between them are an optional reply subject and an optional size of headers.
    let size: usize = std::str::from_utf8(words.next_back()?).ok()?.parse().ok()?;
    Some((subject, size.saturating_add(LINE_BREAK)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of a client, and whether they are acknowledgements.
    const TALK: [(&str, bool); 12] = [
        ("CONNECT {\"verbose\":false,\"user\":\"order\"}\r\n", false),
        ("PING\r\n", false),
        ("SUB _INBOX_order.a.* 1\r\n", false),
        ("PUB $JS.API.CONSUMER.MSG.NEXT.PAYMENT.order-confirm_order _INBOX_order.a.b 2\r\n{}\r\n", false),
        ("PUB $JS.ACK.PAYMENT.order-confirm_order.1.2.3.4.0 4\r\n+ACK\r\n", true),
        ("PUB $JS.ACK.PAYMENT.order-confirm_order.1.2.3.4.0 _INBOX_order.a.c 4\r\n+ACK\r\n", true),
        ("pub\t$JS.ACK._.hash.PAYMENT.order-confirm_order.1.2.3.4.0  0\r\n\r\n", true),
        ("HPUB $JS.ACK.PAYMENT.order-confirm_order.1.2.3.4.0 12 16\r\nNATS/1.0\r\n\r\n+ACK\r\n", true),
        ("PUB events.order.Order 21\r\nPUB $JS.ACK.x 4\r\n+ACK\r\n", false),
        ("HPUB events.order.Order _INBOX_order.a.d 22 24\r\nNATS/1.0\r\nce-id: 1\r\n\r\n{}\r\n", false),
        ("PUB nudge.order 0\r\n\r\n", false),
        ("PONG\r\n", false),
    ];

    fn talk(which: impl Fn(bool) -> bool) -> Vec<u8> {
        TALK.iter().filter(|(_, ack)| which(*ack)).flat_map(|(frame, _)| frame.bytes()).collect()
    }

    /// The bytes that pass of these pieces; a piece says whether acknowledgements are dropped.
    fn passed(pieces: &[(&[u8], bool)]) -> String {
        let (mut frames, mut passed) = (Frames::default(), Vec::new());
        for (bytes, without_acks) in pieces {
            frames.feed(bytes, *without_acks, &mut passed);
        }
        String::from_utf8(passed).unwrap()
    }

    #[test]
    fn only_acknowledgements_are_dropped_at_any_cut() {
        let all = talk(|_| true);
        let others = String::from_utf8(talk(|ack| !ack)).unwrap();
        for cut in 0..=all.len() {
            let (first, second) = all.split_at(cut);
            assert_eq!(passed(&[(first, true), (second, true)]), others, "cut at {cut}");
        }
        let single: Vec<(&[u8], bool)> = all.chunks(1).map(|byte| (byte, true)).collect();
        assert_eq!(passed(&single), others);
    }

    #[test]
    fn without_dropping_all_bytes_pass() {
        let all = talk(|_| true);
        for cut in 0..=all.len() {
            let (first, second) = all.split_at(cut);
            assert_eq!(passed(&[(first, false), (second, false)]).as_bytes(), all, "cut at {cut}");
        }
    }

    #[test]
    fn a_frame_passes_whole_or_not_at_all() {
        let frame: &[u8] = b"PUB $JS.ACK.ORDER.inventory-reserve_stock.1.2.3.4.0 4\r\n+ACK\r\n";
        let (line_and_half, rest) = frame.split_at(frame.len() - 4);
        assert_eq!(passed(&[(line_and_half, false), (rest, true)]).as_bytes(), frame);
        assert_eq!(passed(&[(line_and_half, true), (rest, false), (b"PING\r\n".as_slice(), false)]), "PING\r\n");
    }
}
