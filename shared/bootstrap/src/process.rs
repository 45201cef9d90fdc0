//! Metrics of the process, with the standard names of Prometheus clients, read from `/proc/self` at each scrape. Values that
//! cannot be read (there is no `/proc` outside Linux) are left out.

use std::{fmt, fs};

use prometheus_client::metrics::{counter::ConstCounter, gauge::ConstGauge};

use crate::metrics::Scrape;

/// Ticks of `/proc` per second. The kernel shows 100 to all programs, whatever its own `HZ`, on every
/// architecture that Rust's standard library supports (`USER_HZ`, see proc(5)).
const TICKS_PER_SECOND: f64 = 100.0;

/// Writes `process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_virtual_memory_bytes`,
/// `process_start_time_seconds`, `process_threads`, `process_open_fds` and `process_max_fds`.
pub(crate) fn write_metrics(scrape: &mut Scrape<'_>) -> fmt::Result {
    let times = read("self/stat").as_deref().and_then(times);
    let status = read("self/status").unwrap_or_default();
    if let Some((cpu, _)) = times {
        scrape.one("process_cpu_seconds", "User and system CPU time spent", ConstCounter::new(cpu))?;
    }
    let boot_time = read("stat").as_deref().and_then(|text| number(text, "btime"));
    let started = times.zip(boot_time).map(|((_, after), boot)| boot + after);
    let kibibytes = |key| number(&status, key).map(|kib| kib * 1024.0);
    let gauges = [
        ("process_resident_memory_bytes", "Memory in RAM", kibibytes("VmRSS:")),
        ("process_virtual_memory_bytes", "Memory in the address space", kibibytes("VmSize:")),
        ("process_start_time_seconds", "When the process began, since the Unix epoch", started),
        ("process_threads", "Threads of the operating system", number(&status, "Threads:")),
        ("process_open_fds", "Open file descriptors", open_files()),
        ("process_max_fds", "Most file descriptors that may be open", max_files()),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            scrape.one(name, help, ConstGauge::new(value))?;
        }
    }
    Ok(())
}

/// From `/proc/self/stat`: the CPU time, and the time from the machine's start to the process's, in seconds. The second
/// field is the program's name in parentheses, which may contain spaces and parentheses; so fields are counted from its
/// end. Their numbers are those of proc(5).
fn times(stat: &str) -> Option<(f64, f64)> {
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
    let seconds = |number: usize| Some(fields.get(number - 3)?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    Some((seconds(14)? + seconds(15)?, seconds(22)?))
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{path}")).ok()
}

/// The first number of the line that begins with `key`.
fn number(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

fn open_files() -> Option<f64> {
    let open = fs::read_dir("/proc/self/fd").ok()?.count();
    // One of them is the listing itself.
    Some(open.saturating_sub(1) as f64)
}

/// The soft limit; `None` when there is no limit.
fn max_files() -> Option<f64> {
    number(&read("self/limits")?, "Max open files")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{fs::File, time::Instant};

    use super::*;
    use crate::Metrics;

    fn scraped(metrics: &Metrics, name: &str) -> Option<f64> {
        number(&metrics.encode().unwrap(), &format!("{name} "))
    }

    #[test]
    fn a_programs_name_does_not_shift_later_fields() {
        let stat = "7 (a) (b c) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 15 16 9 18 12345 20 21\n";
        assert_eq!(times(stat), Some((3.0, 123.45)));
        assert_eq!(times("7 (short) S 1"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn process_metrics_have_standard_names_and_plausible_values() {
        let metrics = Metrics::default();
        let text = metrics.encode().unwrap();
        for (name, kind) in [
            ("process_cpu_seconds", "counter"),
            ("process_resident_memory_bytes", "gauge"),
            ("process_virtual_memory_bytes", "gauge"),
            ("process_start_time_seconds", "gauge"),
            ("process_threads", "gauge"),
            ("process_open_fds", "gauge"),
            ("process_max_fds", "gauge"),
        ] {
            assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name}: {text}");
        }
        let scraped = |name| scraped(&metrics, name).unwrap_or_else(|| panic!("{name} is not there"));
        assert!(scraped("process_cpu_seconds_total") >= 0.0);
        let resident = scraped("process_resident_memory_bytes");
        assert!((1e6..1e11).contains(&resident), "{resident}");
        assert!(scraped("process_virtual_memory_bytes") >= resident);
        assert!(scraped("process_threads") >= 1.0);
        assert!((3.0..=scraped("process_max_fds")).contains(&scraped("process_open_fds")));
        let age = now() - scraped("process_start_time_seconds");
        assert!((-2.0..86_400.0).contains(&age), "the process is {age} s old");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn process_metrics_follow_the_use_of_cpu_memory_and_files() {
        let metrics = Metrics::default();
        let before = ["process_cpu_seconds_total", "process_open_fds"].map(|name| scraped(&metrics, name).unwrap());
        let resident = scraped(&metrics, "process_resident_memory_bytes").unwrap();
        let files: Vec<File> = (0..20).map(|_| File::open("/dev/null").unwrap()).collect();
        let memory = std::hint::black_box(vec![1_u8; 64 << 20]);
        let began = Instant::now();
        while scraped(&metrics, "process_cpu_seconds_total").unwrap() < before[0] + 0.05 {
            assert!(began.elapsed().as_secs() < 30, "no CPU time is counted");
        }
        // Other tests of this process may open and close some of their own meanwhile.
        assert!(scraped(&metrics, "process_open_fds").unwrap() > before[1] + files.len() as f64 / 2.0);
        assert!(scraped(&metrics, "process_resident_memory_bytes").unwrap() > resident + memory.len() as f64 / 2.0);
    }

    #[expect(clippy::disallowed_methods, reason = "compared with the time of the kernel")]
    fn now() -> f64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
    }
}
