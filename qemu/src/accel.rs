//! Chooses between the host's processors (KVM) and software emulation (TCG).

use std::fs::{self, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::host::guest::Boot;
use crate::host::session::{self, Ground};
use crate::settings::{Accel, Settings};

const KVM: [&str; 2] = ["kvm", "host"];
const TCG: [&str; 2] = ["tcg,thread=multi", "max"];
const DEVICE: &str = "/dev/kvm";

/// A guest that works under KVM is up in about one second; one that does not hangs for ever.
const PROBE_LIMIT: Duration = Duration::from_secs(12);

/// The words for `-accel` and `-cpu`.
pub(crate) fn choose(settings: &Settings, ground: &Ground, cache: &Path) -> Result<[&'static str; 2]> {
    let tell = |what: &str| {
        if settings.verbose {
            eprintln!("uvia-vm: {what}");
        }
    };
    let usable = OpenOptions::new().read(true).write(true).open(DEVICE);
    match (settings.accel, usable) {
        (Accel::Tcg, _) => Ok(TCG),
        (Accel::Kvm, Ok(_)) => Ok(KVM),
        (Accel::Kvm, Err(error)) => {
            Err(Error::io(format!("open {DEVICE} (--accel tcg does without)"), error))
        }
        (Accel::Auto, Err(error)) => {
            tell(&format!("guests run under software emulation (TCG): {DEVICE}: {error}"));
            Ok(TCG)
        }
        (Accel::Auto, Ok(_)) => {
            let works = verdict(settings, ground, cache);
            tell(if works {
                "guests run on the host's processors (KVM)"
            } else {
                "guests run under software emulation (TCG): KVM is there, but a guest under it does not come up"
            });
            Ok(if works { KVM } else { TCG })
        }
    }
}

/// What the probe said; it is asked once for each boot of the host, QEMU and kernel.
fn verdict(settings: &Settings, ground: &Ground, cache: &Path) -> bool {
    let key = key(ground);
    let file = cache.join("kvm-verdict");
    let known = fs::read_to_string(&file).unwrap_or_default();
    if let Some(answer) = known.strip_prefix(&key) {
        return answer.trim() == "yes";
    }
    let works = probe(settings, ground);
    // Under a name of its own, then renamed: another run shall not read half of it. If it cannot be kept,
    // the next run probes again.
    let draft = cache.join(format!("kvm-verdict.{}", std::process::id()));
    let text = format!("{key}{}\n", if works { "yes" } else { "no" });
    if fs::write(&draft, text).and_then(|()| fs::rename(&draft, &file)).is_err() {
        let _ = fs::remove_file(&draft);
    }
    works
}

fn key(ground: &Ground) -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let stamp = |path: &Path| {
        let stamp = path.metadata().map_or((0, 0), |meta| (meta.mtime(), meta.len()));
        format!("{} {} {}", path.display(), stamp.0, stamp.1)
    };
    format!("{}\n{}\n{}\n", boot.trim(), stamp(&ground.qemu.binary), stamp(&ground.system.kernel))
}

/// Boots a small guest under KVM and sees whether it answers.
fn probe(settings: &Settings, ground: &Ground) -> bool {
    let small = Settings {
        guests: 1,
        vcpus: 1,
        memory_mib: 512,
        hugepages: 0,
        nics: Vec::new(),
        qemu_args: Vec::new(),
        keep_log: None,
        verbose: false,
        ..settings.clone()
    };
    session::start(&small, ground, KVM, 0, &[], &[])
        .and_then(|guest| guest.wait_up(Instant::now() + PROBE_LIMIT, PROBE_LIMIT))
        .is_ok_and(|boot| matches!(boot, Boot::Up))
}
