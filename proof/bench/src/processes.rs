//! Processor time and memory of the suite's processes, from /proc.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context;

/// /proc gives processor time in hundredths of a second.
const TICK_MS: f64 = 10.0;

/// The processes of a suite by name; PostgreSQL is many and counts as one.
#[derive(Debug)]
pub(crate) struct Processes {
    pids: BTreeMap<String, u32>,
}

/// Processor time since each process began, in milliseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cpu(BTreeMap<String, f64>);

impl Processes {
    /// The running processes of the pid files in a run directory.
    pub(crate) fn of(run: &Path) -> anyhow::Result<Self> {
        let mut pids = BTreeMap::new();
        for entry in fs::read_dir(run.join("pid"))? {
            let file = entry?.path();
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let pid = fs::read_to_string(&file)?.split_whitespace().next().and_then(|pid| pid.parse().ok());
            let pid: u32 = pid.with_context(|| format!("{} holds no process id", file.display()))?;
            if Stat::of(pid).is_some() {
                pids.insert(name, pid);
            }
        }
        Ok(Processes { pids })
    }

    /// Includes the load generators that this program has started and that have ended, as `load`.
    pub(crate) fn cpu(&self) -> Cpu {
        let mut times = BTreeMap::new();
        for (name, &pid) in &self.pids {
            let Some(stat) = Stat::of(pid) else { continue };
            // Sessions that have ended count as the server's own time.
            let children: u64 = Stat::children_of(pid).iter().map(|child| child.own).sum();
            times.insert(name.clone(), (stat.own + stat.ended_children + children) as f64 * TICK_MS);
        }
        if let Some(stat) = Stat::of(std::process::id()) {
            times.insert("load".to_owned(), stat.ended_children as f64 * TICK_MS);
        }
        Cpu(times)
    }

    /// The sum of the current memory of the named processes, in MiB.
    pub(crate) fn memory_mib(&self, names: &[&str]) -> f64 {
        self.status(names, "VmRSS:")
    }

    /// The sum of the peak memory of the named processes, in MiB.
    pub(crate) fn peak_memory_mib(&self, names: &[&str]) -> f64 {
        self.status(names, "VmHWM:")
    }

    fn status(&self, names: &[&str], field: &str) -> f64 {
        let kib = |pid: &u32| -> Option<f64> {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?.parse().ok()
        };
        let of_interest = self.pids.iter().filter(|(name, _)| names.iter().any(|wanted| replica_of(name, wanted)));
        of_interest.filter_map(|(_, pid)| kib(pid)).sum::<f64>() / 1_024.0
    }
}

impl Cpu {
    /// Processor time since `earlier`, by process, in descending order.
    pub(crate) fn since(&self, earlier: &Cpu) -> Vec<(String, f64)> {
        let spent =
            |(name, now): (&String, &f64)| (name.clone(), now - earlier.0.get(name).copied().unwrap_or_default());
        let mut spent: Vec<(String, f64)> = self.0.iter().map(spent).collect();
        spent.sort_by(|a, b| b.1.total_cmp(&a.1));
        spent
    }
}

/// `order-2` is a replica of `order`.
fn replica_of(name: &str, service: &str) -> bool {
    name.strip_prefix(service).is_some_and(|rest| rest.is_empty() || rest == "-2")
}

/// Some fields of /proc/PID/stat.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// Time in the program and in the kernel for it, in ticks.
    own: u64,
    ended_children: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn children_of(parent: u32) -> Vec<Self> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter_map(Stat::of).filter(|stat| stat.parent == parent).collect()
    }

    /// The name in parentheses may hold spaces and parentheses; behind it come state and parent.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |n: usize| fields.get(n)?.parse::<u64>().ok();
        (fields.first() != Some(&"Z")).then_some(())?;
        Some(Stat {
            parent: u32::try_from(number(1)?).ok()?,
            own: number(11)? + number(12)?,
            ended_children: number(13)? + number(14)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_a_name_with_parentheses() {
        let line = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3000 400 20 0 1 0 5 6 7";
        assert_eq!(Stat::parse(line), Some(Stat { parent: 7, own: 120, ended_children: 3_400 }));
        assert_eq!(Stat::parse("42 (gone) Z 7 42 42 0 -1 4194560 1 2 3 4 100 20 3000 400 20"), None);
    }

    #[test]
    fn this_process_is_known() {
        assert!(Stat::of(std::process::id()).is_some());
    }

    #[test]
    fn a_second_replica_counts_for_its_service() {
        assert!(replica_of("order", "order") && replica_of("order-2", "order") && !replica_of("order", "payment"));
    }
}
