//! What a card can be charged with. Order accepts nothing that the card processor would not look at: both ask here.

/// The longest name of a customer or of a card, in characters.
pub const MAX_NAME: usize = 128;

/// The least that can be charged, in minor units.
pub const MIN_AMOUNT: i64 = 1;

/// Whether a text can name a customer or a card: 1 to [`MAX_NAME`] characters, none of them a control character.
pub fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_in_characters() {
        for name in ["x", "é", "\u{1f4b3}"] {
            assert!(is_name(&name.repeat(MAX_NAME)) && !is_name(&name.repeat(MAX_NAME + 1)), "{name}");
        }
        assert!(!is_name("") && !is_name("tok\0visa") && !is_name("tok\u{85}visa"));
    }
}
