//! Signatures as of Standard Webhooks 1.0: HMAC-SHA256 of id, timestamp and body.

use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use uuid::Uuid;

use crate::Secrets;

/// The value of the header `webhook-signature`: a signature of each key, separated by a space. `timestamp` is in Unix seconds.
pub(crate) fn sign(secrets: &Secrets, id: Uuid, timestamp: i64, body: &[u8]) -> String {
    let signatures: Vec<_> = secrets.keys().filter_map(|key| signature(key, id, timestamp, body)).collect();
    signatures.join(" ")
}

/// HMAC accepts keys of any length.
fn signature(key: &[u8], id: Uuid, timestamp: i64, body: &[u8]) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    Some(format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key is the one of the Standard Webhooks examples; the signature was computed with `openssl dgst -sha256 -mac HMAC`.
    #[test]
    fn a_signature_is_that_of_openssl() {
        let secrets: Secrets = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().expect("a key");
        let signed = sign(&secrets, Uuid::from_u128(7), 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,DpjDiUQtqY4KpU+ttsaMN4ufTzLZ/I1uCUwqulcoqnM=");
    }

    #[test]
    fn while_a_key_is_replaced_there_is_a_signature_of_each() {
        let (new, old) = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
        let of = |secret: &str| sign(&secret.parse().expect("a key"), Uuid::nil(), 0, b"{}");
        assert_eq!(of(&format!("{new},{old}")), format!("{} {}", of(new), of(old)));
    }
}
