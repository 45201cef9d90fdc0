//! Who a token makes its bearer: the services' admin token an admin, and two of the console's own an operator or a viewer.

use std::sync::Arc;

use bootstrap::Secret;

use crate::operations::Role;

/// Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Tokens(Arc<[(Role, Secret)]>);

impl Tokens {
    pub(crate) fn new(admin: &str, operator: Option<&str>, viewer: Option<&str>) -> Tokens {
        let all = [(Role::Admin, Some(admin)), (Role::Operator, operator), (Role::Viewer, viewer)];
        let given =
            all.into_iter().filter_map(|(role, token)| Some((role, Secret::new(token.filter(|t| !t.is_empty())?))));
        Tokens(given.collect())
    }

    pub(crate) fn role(&self, token: &str) -> Option<Role> {
        self.0.iter().find(|(_, of)| of.matches(token.as_bytes())).map(|(role, _)| *role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_one_role_and_an_empty_one_none() {
        let tokens = Tokens::new("a", Some("o"), Some(""));
        assert_eq!(
            ["a", "o", "", "v"].map(|token| tokens.role(token)),
            [Some(Role::Admin), Some(Role::Operator), None, None]
        );
    }
}
