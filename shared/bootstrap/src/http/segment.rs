//! Ids in paths.

/// Percent-encodes an id, which may contain reserved characters of URLs, as one segment of a path.
pub fn path_segment(id: &str) -> String {
    let encoded = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    id.bytes().map(encoded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_id_makes_one_path_segment() {
        assert_eq!(path_segment("A/B-1?%"), "A%2FB-1%3F%25");
        assert_eq!(path_segment("J\u{e9}"), "J%C3%A9");
    }
}
