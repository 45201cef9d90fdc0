//! Variables, put into queries as Grafana does it.

use std::collections::BTreeMap;

use anyhow::{Context, bail};

use super::boards::{Language, Variable};

/// What Grafana writes for "All".
const ALL: &str = "$__all";

/// The time that a dashboard shows, and how often Prometheus scrapes; in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) scrape: f64,
}

/// What the variables of a dashboard stand for.
#[derive(Debug, Clone, Default)]
pub(super) struct Chosen(BTreeMap<String, Choice>);

#[derive(Debug, Clone)]
enum Choice {
    /// Put in as it is.
    Raw(String),
    /// One value of a variable that has one at a time.
    One(String),
    Many(Vec<String>),
}

impl Chosen {
    /// Chooses what a dashboard shows at first: everything, if the variable has that, else what is stored with it, or the
    /// first of the values that its query has answered.
    pub(super) fn choose(&mut self, variable: &Variable, values: Vec<String>) -> anyhow::Result<()> {
        let stored: Vec<String> = variable.current.iter().filter(|value| *value != ALL).cloned().collect();
        let choice = match (&variable.all_value, variable.include_all) {
            (Some(all), true) => Choice::Raw(all.clone()),
            (None, true) => Choice::Many(values),
            _ if variable.multi => Choice::Many(if stored.is_empty() { values } else { stored }),
            _ => {
                let value = stored.into_iter().next().or_else(|| values.into_iter().next());
                Choice::One(value.with_context(|| format!("{} has no value to choose", variable.name))?)
            }
        };
        if matches!(&choice, Choice::Many(values) if values.is_empty()) {
            bail!("{} has no values", variable.name);
        }
        self.0.insert(variable.name.clone(), choice);
        Ok(())
    }

    /// The query with every variable put in.
    ///
    /// # Errors
    /// When it uses a variable or a macro that is not there.
    pub(super) fn put_into(&self, text: &str, language: Language, step: f64, times: Times) -> anyhow::Result<String> {
        let text = match language {
            Language::PromQl => text.to_owned(),
            Language::Sql => macros(text, times)?,
        };
        replace(&text, &|name, format| {
            if let Some(value) = built_in(name, step, times) {
                return Ok(value);
            }
            let choice = self.0.get(name).with_context(|| format!("there is no variable {name}"))?;
            match (choice, language, format) {
                (Choice::Raw(value) | Choice::One(value), _, Some("raw")) | (Choice::Raw(value), ..) => {
                    Ok(value.clone())
                }
                (Choice::One(value), Language::PromQl, None) => Ok(value.replace('\\', r"\\").replace('"', "\\\"")),
                (Choice::One(value), Language::Sql, None) => Ok(value.replace('\'', "''")),
                (Choice::One(value), ..) => formatted(std::slice::from_ref(value), language, format),
                (Choice::Many(values), ..) => formatted(values, language, format),
            }
        })
    }
}

/// The step of a range query: what a panel of a thousand points needs, but not less than a scrape or the panel's own.
pub(super) fn step(interval: Option<&str>, times: Times) -> anyhow::Result<f64> {
    let least = interval.map(|least| seconds(least.trim_start_matches('>'))).transpose()?.unwrap_or(0.0);
    Ok(((times.to - times.from) / 1000.0).max(least).max(times.scrape).ceil())
}

fn seconds(duration: &str) -> anyhow::Result<f64> {
    let (number, unit) = duration.split_at(duration.find(|c: char| c.is_alphabetic()).context("no unit")?);
    let unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        other => bail!("{other} is no unit of time"),
    };
    Ok(number.parse::<f64>()? * unit)
}

fn built_in(name: &str, step: f64, times: Times) -> Option<String> {
    let range = (times.to - times.from).round();
    // As in Grafana's documentation of `$__rate_interval`.
    let rate = (step + times.scrape).max(4.0 * times.scrape);
    Some(match name {
        "__interval" => format!("{step}s"),
        "__interval_ms" => format!("{}", step * 1000.0),
        "__rate_interval" => format!("{rate}s"),
        "__rate_interval_ms" => format!("{}", rate * 1000.0),
        "__range" => format!("{range}s"),
        "__range_s" => format!("{range}"),
        "__range_ms" => format!("{}", range * 1000.0),
        "__from" => format!("{}", (times.from * 1000.0).round()),
        "__to" => format!("{}", (times.to * 1000.0).round()),
        _ => return None,
    })
}

fn formatted(values: &[String], language: Language, format: Option<&str>) -> anyhow::Result<String> {
    let quoted = || values.iter().map(|v| format!("'{}'", v.replace('\'', "''"))).collect::<Vec<_>>().join(",");
    let alternatives = || match values {
        [value] => escaped(value),
        _ => format!("({})", values.iter().map(|value| escaped(value)).collect::<Vec<_>>().join("|")),
    };
    Ok(match (format, language) {
        (None | Some("regex"), Language::PromQl) => alternatives().replace('\\', r"\\"),
        (Some("regex"), Language::Sql) => alternatives(),
        (None | Some("sqlstring" | "singlequote"), Language::Sql) => quoted(),
        (Some("csv" | "raw"), _) => values.join(","),
        (Some("pipe"), _) => values.join("|"),
        (other, _) => bail!("the format {other:?} is not known here"),
    })
}

/// A value as a regular expression that matches nothing else.
fn escaped(value: &str) -> String {
    value.chars().flat_map(|c| r"\^$*+?.()|[]{}/".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

/// The macros of Grafana's PostgreSQL datasource.
fn macros(sql: &str, times: Times) -> anyhow::Result<String> {
    let [from, to] = [times.from, times.to].map(|at| format!("to_timestamp({at})"));
    let mut sql = sql.replace("$__timeFrom()", &from).replace("$__timeTo()", &to);
    while let Some(at) = sql.find("$__timeFilter(") {
        let begin = at + "$__timeFilter(".len();
        let end = begin + sql[begin..].find(')').context("$__timeFilter is not closed")?;
        let between = format!("{} between {from} and {to}", &sql[begin..end]);
        sql.replace_range(at..=end, &between);
    }
    Ok(sql)
}

/// Puts a value in place of each `$name`, `${name}`, `${name:format}` and `[[name]]`.
fn replace(text: &str, value: &dyn Fn(&str, Option<&str>) -> anyhow::Result<String>) -> anyhow::Result<String> {
    let mut done = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['$', '[']) {
        done.push_str(&rest[..at]);
        rest = &rest[at..];
        let braced = |open: &str, close: &str| {
            let inner = rest.strip_prefix(open)?;
            let end = inner.find(close)?;
            Some((inner[..end].to_owned(), open.len() + end + close.len()))
        };
        let plain = || {
            let name = rest.strip_prefix('$')?;
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
            // `$1` is a group of a regular expression, a lone `$` its end.
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_').then(|| (name[..end].to_owned(), 1 + end))
        };
        match braced("${", "}").or_else(|| braced("[[", "]]")).or_else(plain) {
            Some((inner, length)) => {
                let (name, format) = inner.split_once(':').map_or((&*inner, None), |(n, f)| (n, Some(f)));
                done.push_str(&value(name, format)?);
                rest = &rest[length..];
            }
            None => {
                done.push_str(&rest[..1]);
                rest = &rest[1..];
            }
        }
    }
    Ok(done + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times { from: 1_000.0, to: 1_120.0, scrape: 1.0 };

    fn variable(name: &str, include_all: bool, all_value: Option<&str>) -> Variable {
        Variable {
            name: name.to_owned(),
            kind: "query".to_owned(),
            query: String::new(),
            language: Language::PromQl,
            multi: include_all,
            include_all,
            all_value: all_value.map(str::to_owned),
            current: vec![ALL.to_owned()],
        }
    }

    fn chosen() -> Chosen {
        let mut chosen = Chosen::default();
        let values = || vec!["order".to_owned(), "a.b".to_owned()];
        chosen.choose(&variable("service", true, None), values()).expect("chosen");
        chosen.choose(&variable("step", true, Some(".*")), values()).expect("chosen");
        chosen.choose(&variable("saga", false, None), values()).expect("chosen");
        chosen
    }

    fn promql(text: &str) -> anyhow::Result<String> {
        chosen().put_into(text, Language::PromQl, 1.0, TIMES)
    }

    #[test]
    fn all_of_a_variable_is_a_choice_of_its_values_or_what_it_says_itself() {
        let put = promql(r#"x{a=~"$service", b=~"${step:regex}", c="[[saga]]"}"#).expect("put in");
        assert_eq!(put, r#"x{a=~"(order|a\\.b)", b=~".*", c="order"}"#);
    }

    #[test]
    fn intervals_follow_the_scrapes_and_the_range() {
        let put = promql("rate(x[$__rate_interval]) + y[$__range] + z[${__interval}]").expect("put in");
        assert_eq!(put, "rate(x[4s]) + y[120s] + z[1s]");
        assert_eq!(step(Some("30s"), TIMES).expect("a step"), 30.0);
        assert_eq!(step(None, TIMES).expect("a step"), 1.0);
    }

    #[test]
    fn groups_and_ends_of_regular_expressions_are_no_variables_and_unknown_ones_are_refused() {
        let text = r#"label_replace(x{a=~"b$"}, "c", "$1", "d", "(.*)")"#;
        assert_eq!(promql(text).expect("put in"), text);
        assert!(promql("x{a=\"$unknown\"}").is_err());
    }

    #[test]
    fn sql_is_given_quoted_lists_and_times() {
        let sql = |text| chosen().put_into(text, Language::Sql, 1.0, TIMES).expect("put in");
        assert_eq!(sql("a in ($service) and b = '$saga'"), "a in ('order','a.b') and b = 'order'");
        assert_eq!(sql("$__timeFilter(t)"), "t between to_timestamp(1000) and to_timestamp(1120)");
    }
}
