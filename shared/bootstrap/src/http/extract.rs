//! Extractors for input. Refusals are problems: 415 for another media type or an encoding, 413 for a large body, 400 for invalid
//! JSON, and 422 with a JSON pointer for well-formed input that does not match. NUL characters are refused, because PostgreSQL
//! cannot store them.

use std::{fmt, marker::PhantomData};

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, OptionalFromRequest, Request, rejection::BytesRejection},
    http::{HeaderMap, StatusCode, Uri, header, request::Parts, uri::InvalidUri},
    response::{IntoResponse, Response},
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_path_to_error::Segment;

use super::{PageQuery, Problem};

/// A JSON body of a request or a response.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

/// The path's parameters.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

/// The query's parameters.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        require_json(request.headers())?;
        let bytes = Bytes::from_request(request, state).await.map_err(unreadable_body)?;
        parse(&bytes).map(Self)
    }
}

/// `Option<Json<T>>`: an empty body is `None`, whatever its content type, and so is `null`.
impl<T: DeserializeOwned, S: Send + Sync> OptionalFromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Option<Self>, Problem> {
        let headers = request.headers().clone();
        let bytes = Bytes::from_request(request, state).await.map_err(unreadable_body)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        require_json(&headers)?;
        Ok(parse::<Option<T>>(&bytes)?.map(Self))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => Problem::internal(&error).into_response(),
        }
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        use axum::extract::{path::ErrorKind, rejection::PathRejection};

        refuse_encoded_nul(parts.uri.path(), "path")?;
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(PathRejection::FailedToDeserializePathParams(failure)) => {
                if failure.status() == StatusCode::INTERNAL_SERVER_ERROR {
                    return Err(Problem::internal(&failure));
                }
                let detail = failure.body_text();
                Err(match failure.into_kind() {
                    ErrorKind::InvalidUtf8InPathParam { .. } => Problem::bad_request(detail),
                    ErrorKind::ParseErrorAtKey { key, .. } | ErrorKind::DeserializeError { key, .. } => {
                        Problem::unprocessable(detail.clone()).with_error(format!("/{key}"), detail)
                    }
                    _ => Problem::unprocessable(detail),
                })
            }
            Err(other) => Err(Problem::internal(&other)),
        }
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        read_query(&parts.uri).map(Self)
    }
}

/// The query's parameters: a list's own filter and those of its pages (`serde(flatten)` does not work with
/// `deny_unknown_fields`).
#[derive(Clone, Debug)]
pub struct Filtered<F>(pub F, pub PageQuery);

impl<F: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Filtered<F> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let of_page = |pair: &&str| pair.starts_with("limit=") || pair.starts_with("cursor=");
        let pairs = parts.uri.query().unwrap_or_default().split('&');
        let (page, own): (Vec<&str>, Vec<&str>) = pairs.partition(of_page);
        let uri =
            |pairs: Vec<&str>| format!("/?{}", pairs.join("&")).parse().map_err(|e: InvalidUri| Problem::internal(&e));
        Ok(Self(read_query(&uri(own)?)?, read_query(&uri(page)?)?))
    }
}

fn read_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    refuse_encoded_nul(uri.query().unwrap_or_default(), "query")?;
    let refused = match axum::extract::Query::try_from_uri(uri) {
        Ok(axum::extract::Query(value)) => return Ok(value),
        Err(rejection) => rejection.body_text(),
    };
    let reason = refused.strip_prefix("Failed to deserialize query string: ").unwrap_or(&refused);
    // axum prefixes the reason with the parameter's name, unless the whole query is invalid.
    let (name, detail) = match reason.split_once(": ") {
        Some((name, detail)) if !name.contains(' ') => (name, detail),
        _ => ("", reason),
    };
    let pointer = pointer_with_field(if name.is_empty() { String::new() } else { format!("/{name}") }, detail);
    Err(Problem::unprocessable(format!("The query is not acceptable: {reason}")).with_error(pointer, detail))
}

fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    if headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(Problem::unsupported_media_type("The request body must not be encoded: no `Content-Encoding`."));
    }
    let media_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    if media_type == "application/json" || (media_type.starts_with("application/") && media_type.ends_with("+json")) {
        return Ok(());
    }
    Err(Problem::unsupported_media_type(
        "The request body must be JSON, with the header `Content-Type: application/json`.",
    ))
}

pub(super) fn unreadable_body(rejection: BytesRejection) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::content_too_large("The request body is larger than this service accepts.");
    }
    Problem::bad_request("The request body could not be read to its end.")
}

/// A JSON object. serde also accepts a list of a struct's members, in order, for the struct, which no schema here allows.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members))
            }
        }

        deserializer.deserialize_map(Members(PhantomData)).map(Self)
    }
}

/// For a member that is a struct: accepts only an object.
///
/// # Errors
/// The value is not an object, or its members do not match.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|Object(value)| value)
}

/// For a member that is a list of structs: accepts only objects.
///
/// # Errors
/// An item is not an object, or its members do not match.
pub fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let list = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(list.into_iter().map(|Object(value)| value).collect())
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    refuse_nul(bytes)?;
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        // The document may also be malformed after the value of the wrong type.
        match serde_json::from_slice::<serde::de::IgnoredAny>(bytes) {
            Err(malformed) => not_json(&malformed),
            Ok(_) => refusal(pointer_of(error.path()), error.inner()),
        }
    })?;
    deserializer.end().map_err(|error| not_json(&error))?;
    if bytes.trim_ascii_start().starts_with(b"[") {
        let detail = "invalid type: sequence, expected an object";
        return Err(Problem::unprocessable("The request body is a list, and not an object.").with_error("", detail));
    }
    Ok(value)
}

fn not_json(error: &serde_json::Error) -> Problem {
    Problem::bad_request(format!("The request body is not valid JSON: {error}."))
}

fn refusal(pointer: String, error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    // serde_json appends " at line L column C"; the pointer is more useful.
    let detail = text.rsplit_once(" at line ").map_or(text.as_str(), |(detail, _)| detail);
    let pointer = pointer_with_field(pointer, detail);
    Problem::unprocessable(format!("The request body is not acceptable: {detail}.")).with_error(pointer, detail)
}

fn pointer_of(path: &serde_path_to_error::Path) -> String {
    let mut pointer = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } => pointer.push_str(&format!("/{}", escaped(key))),
            // An enum's variant is not a member of the document, and an unknown segment has no name.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}

/// serde reports a missing or unknown field at its parent; this appends the field.
fn pointer_with_field(pointer: String, detail: &str) -> String {
    ["missing field `", "unknown field `"]
        .iter()
        .find_map(|start| detail.strip_prefix(start))
        .and_then(|rest| rest.split_once('`'))
        .map(|(field, _)| format!("/{}", escaped(field)))
        .filter(|field| !pointer.ends_with(field.as_str()))
        .map_or(pointer.clone(), |field| pointer + &field)
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// A raw NUL byte is not valid JSON, so only an escape can produce one; most bodies contain none and are not parsed twice.
fn refuse_nul(bytes: &[u8]) -> Result<(), Problem> {
    if !bytes.windows(6).any(|window| window == br"\u0000") {
        return Ok(());
    }
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(bytes) else {
        // The parser reports the error.
        return Ok(());
    };
    match nul_in(&document, String::new()) {
        Some(pointer) => Err(Problem::invalid(pointer, "must not contain the NUL character")),
        None => Ok(()),
    }
}

fn nul_in(value: &serde_json::Value, pointer: String) -> Option<String> {
    match value {
        serde_json::Value::String(text) => text.contains('\0').then_some(pointer),
        serde_json::Value::Array(items) => {
            items.iter().enumerate().find_map(|(index, item)| nul_in(item, format!("{pointer}/{index}")))
        }
        serde_json::Value::Object(members) => members.iter().find_map(|(key, member)| {
            if key.contains('\0') {
                return Some(pointer.clone());
            }
            nul_in(member, format!("{pointer}/{}", escaped(key)))
        }),
        _ => None,
    }
}

fn refuse_encoded_nul(text: &str, part: &str) -> Result<(), Problem> {
    if text.contains("%00") {
        return Err(Problem::unprocessable(format!("The {part} must not contain the NUL character.")));
    }
    Ok(())
}

#[cfg(test)]
#[path = "extract_tests.rs"]
mod tests;
