//! Which machine figures are of.

use std::fmt;

use serde::Serialize;

/// A machine, in the words that it has for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The processor's model.
    pub cpu: String,
    /// Processors that we may use.
    pub processors: usize,
    /// Linux's release.
    pub kernel: String,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: model(&read("/proc/cpuinfo")).unwrap_or("unknown processor").to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

/// The first processor's model.
fn model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.processors == 1 { "" } else { "s" };
        write!(f, "{}, {} processor{plural}, Linux {}", self.cpu, self.processors, self.kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found() {
        assert_eq!(model("processor\t: 0\nmodel name\t: A B: C\n"), Some("A B: C"));
        assert_eq!(model("processor\t: 0\n"), None);
    }
}
