//! Malicious and malformed input: at the routes, on the wire, in requests, in events, in the database.

mod charges;
mod dice;
mod doors;
mod events;
mod floods;
mod privileges;
mod requests;
