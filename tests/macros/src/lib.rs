//! `#[suite_tests::test]`: a test of the suite, which fails when it leaves a suite without an audit.

use proc_macro::{TokenStream, TokenTree};

/// Runs the function like `#[tokio::test]`, in `suite_tests::audited`. `#[suite_tests::test(unaudited = REASON)]` excuses it.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let mut arguments = arguments.into_iter();
    let excuse = match (arguments.next(), arguments.next()) {
        (None, None) => "None".to_owned(),
        (Some(name), Some(equals)) if name.to_string() == "unaudited" && equals.to_string() == "=" => {
            format!("Some({})", arguments.collect::<TokenStream>())
        }
        _ => return parsed("compile_error!(\"#[suite_tests::test] or #[suite_tests::test(unaudited = REASON)]\");"),
    };
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    let Some(TokenTree::Group(body)) = tokens.pop() else {
        return parsed("compile_error!(\"#[suite_tests::test] is for a function\");");
    };
    // The body keeps its own tokens, so that compile errors in it have the right position.
    let mut call: Vec<TokenTree> =
        parsed(&format!("::suite_tests::audited({excuse}, async move BODY).await")).into_iter().collect();
    for token in &mut call {
        if let TokenTree::Group(group) = token
            && group.stream().to_string().contains("BODY")
        {
            let stream = group.stream().into_iter().map(|inner| match inner {
                TokenTree::Ident(name) if name.to_string() == "BODY" => TokenTree::Group(body.clone()),
                other => other,
            });
            *token = TokenTree::Group(proc_macro::Group::new(group.delimiter(), stream.collect()));
        }
    }
    let body = proc_macro::Group::new(proc_macro::Delimiter::Brace, call.into_iter().collect());
    let mut test = parsed("#[::tokio::test]");
    test.extend(tokens);
    test.extend([TokenTree::Group(body)]);
    test
}

#[expect(clippy::expect_used, reason = "these are texts of this file")]
fn parsed(text: &str) -> TokenStream {
    text.parse().expect("tokens")
}
