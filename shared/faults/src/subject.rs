//! The subject of a pass, which is compared with the scope of a fault. It is propagated with an event as W3C baggage, so that
//! every service knows the order, the customer and the SKUs.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use uuid::Uuid;

/// The longest baggage header, in bytes.
const BAGGAGE_LIMIT: usize = 2048;

/// The characters to encode in a value of the baggage header: all but the unreserved ones of RFC 3986.
const IN_BAGGAGE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The characters of a SKU to encode inside the list of SKUs, before the list as a whole is encoded.
const IN_LIST: &AsciiSet = &CONTROLS.add(b'%').add(b';');

/// The subject of a pass, as far as it is known at the point.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    pub saga_id: Option<Uuid>,
    pub order_id: Option<Uuid>,
    pub customer_id: Option<String>,
    pub skus: Vec<String>,
    /// The name of the saga's step in progress.
    pub step: Option<&'static str>,
}

setters! {
    Subject.saga_id: saga(Uuid),
    Subject.order_id: order(Uuid),
    Subject.customer_id: customer(impl Into<String>),
    Subject.step: step(&'static str),
}

impl Subject {
    pub fn skus<S: Into<String>>(mut self, skus: impl IntoIterator<Item = S>) -> Self {
        self.skus.extend(skus.into_iter().map(Into::into));
        self
    }

    /// The subject of an event with this `baggage` header. Other and unreadable members are ignored: baggage is a hint, and a
    /// fault that is not injected has no effect.
    pub fn from_baggage(saga_id: impl Into<Option<Uuid>>, baggage: &str) -> Self {
        let mut subject = Subject { saga_id: saga_id.into(), ..Subject::default() };
        for (key, value) in baggage.split(',').filter_map(member) {
            match key {
                "saga" if subject.saga_id.is_none() => subject.saga_id = decoded(value).parse().ok(),
                "order" => subject.order_id = decoded(value).parse().ok(),
                "customer" => subject.customer_id = Some(decoded(value)),
                "skus" => subject.skus = decoded(value).split(';').map(decoded).collect(),
                _ => {}
            }
        }
        subject
    }

    /// The W3C `baggage` header value with the subject of an order's events: `order=..,customer=..,skus=A%3BB`. It never
    /// exceeds 2 KiB. SKUs or a customer that do not fit are left out: a fault with such a scope does not hit the order.
    pub fn baggage<'a>(order_id: Uuid, customer_id: &str, skus: impl Iterator<Item = &'a str>) -> String {
        let mut baggage = format!("order={order_id}");
        push_if_it_fits(&mut baggage, ",customer=", customer_id);
        let mut before = ",skus=";
        for sku in skus {
            // Encoded twice, so that a semicolon inside a SKU differs from one between two.
            if push_if_it_fits(&mut baggage, before, &utf8_percent_encode(sku, IN_LIST).to_string()) {
                before = "%3B";
            }
        }
        baggage
    }
}

fn push_if_it_fits(baggage: &mut String, before: &str, value: &str) -> bool {
    let length = baggage.len();
    baggage.push_str(before);
    baggage.extend(utf8_percent_encode(value, IN_BAGGAGE));
    let fits = baggage.len() <= BAGGAGE_LIMIT;
    if !fits {
        baggage.truncate(length);
    }
    fits
}

/// The key and the still encoded value of one member, without its properties.
fn member(member: &str) -> Option<(&str, &str)> {
    let (key, value) = member.split(';').next()?.split_once('=')?;
    Some((key.trim(), value.trim()))
}

fn decoded(value: &str) -> String {
    percent_decode_str(value).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const ORDER: Uuid = Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0001);
    const SAGA: Uuid = Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0002);

    fn baggage(customer: &str, skus: &[String]) -> String {
        Subject::baggage(ORDER, customer, skus.iter().map(String::as_str))
    }

    fn is_subsequence(part: &[String], whole: &[String]) -> bool {
        let mut whole = whole.iter();
        part.iter().all(|item| whole.any(|other| other == item))
    }

    #[test]
    fn baggage_has_the_documented_form() {
        let skus = ["A".to_owned(), "B".to_owned()];
        assert_eq!(baggage("cust-1", &skus), format!("order={ORDER},customer=cust-1,skus=A%3BB"));
        assert_eq!(baggage("a,b", &[]), format!("order={ORDER},customer=a%2Cb"));
    }

    #[test]
    fn other_members_are_ignored() {
        let text = format!("userId=alice, order = {ORDER};ttl=3 , skus=A%3BB;x=y,nonsense,=,customer=c%201");
        let expected = Subject::default().order(ORDER).customer("c 1").skus(["A", "B"]);
        assert_eq!(Subject::from_baggage(None, &text), expected);
    }

    #[test]
    fn the_saga_is_read_from_baggage_if_not_given() {
        let text = format!("order={ORDER},saga={SAGA}");
        assert_eq!(Subject::from_baggage(None, &text), Subject::default().order(ORDER).saga(SAGA));
        assert_eq!(Subject::from_baggage(ORDER, &text).saga_id, Some(ORDER));
    }

    #[test]
    fn unreadable_baggage_is_ignored() {
        assert_eq!(Subject::from_baggage(SAGA, "order=17,customer"), Subject::default().saga(SAGA));
        assert_eq!(Subject::from_baggage(None, ""), Subject::default());
    }

    #[test]
    fn only_skus_that_fit_are_written() {
        let skus = ["first".to_owned(), "x".repeat(3000), "last".to_owned()];
        let subject = Subject::from_baggage(SAGA, &baggage("cust-1", &skus));
        assert_eq!(subject, Subject::default().saga(SAGA).order(ORDER).customer("cust-1").skus(["first", "last"]));
    }

    #[test]
    fn baggage_is_at_most_2_kib_long() {
        let room = 2048 - baggage("c", &[String::new()]).len();
        assert_eq!(baggage("c", &["x".repeat(room)]).len(), 2048);
        assert_eq!(baggage("c", &["x".repeat(room + 1)]), baggage("c", &[]));
    }

    proptest! {
        #[test]
        fn baggage_that_fits_round_trips(customer in any::<String>(), skus in vec(any::<String>(), 0..8)) {
            let text = baggage(&customer, &skus);
            let subject = Subject::from_baggage(SAGA, &text);
            prop_assert_eq!(subject.saga_id, Some(SAGA));
            prop_assert_eq!(subject.order_id, Some(ORDER));
            // A byte becomes at most five: `%` in a SKU is written `%2525`.
            let longest = 3 * customer.len() + skus.iter().map(|sku| 5 * sku.len() + 3).sum::<usize>() + 100;
            if longest <= BAGGAGE_LIMIT {
                prop_assert_eq!(subject.customer_id, Some(customer));
                prop_assert_eq!(subject.skus, skus);
            } else {
                prop_assert!(is_subsequence(&subject.skus, &skus));
            }
        }

        #[test]
        fn baggage_is_always_a_short_header_value(
            customer in ".{0,400}",
            skus in vec(".{0,60}", 0..120),
        ) {
            let text = baggage(&customer, &skus);
            prop_assert!(text.len() <= BAGGAGE_LIMIT);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"=,-._~%".contains(&byte)));
            let subject = Subject::from_baggage(None, &text);
            prop_assert!(subject.customer_id.is_none_or(|id| id == customer));
            prop_assert!(is_subsequence(&subject.skus, &skus));
        }

        #[test]
        fn any_text_can_be_read_as_baggage(text in any::<String>()) {
            prop_assert_eq!(Subject::from_baggage(SAGA, &text).saga_id, Some(SAGA));
        }
    }
}
