//! Confirmations of what cannot be undone: an operation is first shown with what it concerns, and its caller confirms exactly that.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::secret;

/// How long what was shown may be confirmed.
const LASTS: Duration = Duration::from_secs(600);
/// How many wait at most; then the oldest is forgotten.
const MAX_WAITING: usize = 1_000;

/// What was shown, and to whom. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Confirmations(Arc<Mutex<HashMap<String, Shown>>>);

#[derive(Debug)]
struct Shown {
    what: String,
    at: Instant,
}

impl Confirmations {
    /// A token for exactly this: the caller, the operation and its arguments.
    pub(crate) fn shown(&self, what: String) -> String {
        let token = secret();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, shown| shown.at.elapsed() < LASTS);
        if waiting.len() >= MAX_WAITING
            && let Some(oldest) = waiting.iter().min_by_key(|(_, shown)| shown.at).map(|(token, _)| token.clone())
        {
            waiting.remove(&oldest);
        }
        waiting.insert(token.clone(), Shown { what, at: Instant::now() });
        token
    }

    /// Whether this was shown under this token. A token is good for one call.
    pub(crate) fn confirmed(&self, token: &str, what: &str) -> bool {
        let shown = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(token);
        shown.is_some_and(|shown| shown.what == what && shown.at.elapsed() < LASTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_shown_is_confirmed_and_once() {
        let confirmations = Confirmations::default();
        let token = confirmations.shown("discard 1".to_owned());
        assert!(!confirmations.confirmed(&token, "discard 2"));
        assert!(!confirmations.confirmed(&token, "discard 1"), "a wrong use has spent it");
        let token = confirmations.shown("discard 1".to_owned());
        assert!(confirmations.confirmed(&token, "discard 1") && !confirmations.confirmed(&token, "discard 1"));
        assert!(!confirmations.confirmed("guess", "discard 1"));
    }

    #[test]
    fn what_waits_is_bounded() {
        let confirmations = Confirmations::default();
        for n in 0..MAX_WAITING * 2 {
            confirmations.shown(n.to_string());
        }
        assert_eq!(confirmations.0.lock().expect("no panic").len(), MAX_WAITING);
    }
}
