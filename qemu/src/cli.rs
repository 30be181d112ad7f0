//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;

use crate::host::signals;
use crate::nic::NicKind;
use crate::settings::{Accel, Settings};
use crate::{command, main_job};

const EXAMPLES: &str = "\
Examples:
  qemu/run                              two guests move a file; then how fast messages are
  qemu/run --nic virtio --file /boot/initrd.img
  qemu/run --nic e1000 -- uvia-bind status
  qemu/run --nic e1000,virtio -- sh -c 'uvia-perf raw lat --pair $UVIA_NIC_A $UVIA_NIC_B --size 64'
  qemu/run --no-attach -- ip link
  qemu/run --nic model-virtio -- uvia-info --nic 0000:01:00.0   our model of a NIC
  qemu/run --nic model-e1000,e1000 --no-attach -- ip link              beside one of QEMU's
  qemu/run --nic model-e1000 --device-arg --faults --device-arg ./faults -- uvia-perf ...
  qemu/run --adapter-memory 1M -- sh -c 'uvia-perf lat --class pio --pair $UVIA_NIC_A $UVIA_NIC_B'
  qemu/run --carry /usr/bin/strace -- strace -c uvia-info --nic 0000:01:00.0
  qemu/run --guests 2 -- sh -c 'echo \"guest $UVIA_GUEST has $UVIA_NIC_A\"'

In the guest, COMMAND runs as root in /root with nothing to read, and finds UVIA_GUEST (0, 1, ...), UVIA_NIC_A and UVIA_NIC_B (PCI addresses) in its environment, and our tools on PATH. One guest has two NICs, joined back to back. With --guests N each guest has one NIC, UVIA_NIC_A (with --nics-each 2 both), and all are on one segment.

NICs called model-... are models of ours, served to QEMU by a process of their own (uvia-device). They take a QEMU with vfio-user, 10.1 or later; where the system's is older, Debian's newest is fetched, 40 MB, and not installed.

Exit status: COMMAND's; 128 + the signal that ended it; 124 if --timeout is over; 125 if the launcher failed.
Of several guests, that of the first one, by number, whose status is not 0.";

/// Runs a command in a QEMU guest whose NICs are driven from user space; without one, the main job.
#[derive(Debug, Parser)]
#[command(name = "qemu/run", bin_name = "qemu/run", version, after_help = EXAMPLES)]
struct Cli {
    /// The NICs' kind, or KIND,KIND for NIC A and NIC B (of several guests: in turn); e1000, e1000e, igb,
    /// virtio, virtio-packed, vmxnet3, model-e1000, model-virtio, model-virtio-packed
    #[arg(long, value_name = "KIND[,KIND]", value_delimiter = ',', default_value = "e1000")]
    nic: Vec<NicKind>,
    /// How many guests [default: 1]; COMMAND runs in each, and its lines are prefixed with the guest's number
    #[arg(long, value_name = "N")]
    guests: Option<usize>,

    /// NICs of each of several guests, 1 or 2; of two, KIND,KIND are those of each guest
    #[arg(long, value_name = "N", default_value_t = 1)]
    nics_each: usize,
    /// Give the NICs to vfio-pci before COMMAND starts (the default)
    #[arg(long, overrides_with = "no_attach")]
    attach: bool,
    /// Leave the NICs to the guest kernel's own drivers
    #[arg(long, overrides_with = "attach")]
    no_attach: bool,
    /// A host file or folder that appears in the guest at the same absolute path, programs with the shared
    /// libraries that they need; may be repeated
    #[arg(long, value_name = "PATH")]
    carry: Vec<PathBuf>,
    /// A module of the guest's kernel to load; may be repeated
    #[arg(long, value_name = "NAME")]
    module: Vec<String>,
    /// A further PCI function of each guest: memory of an adapter, so many bytes (such as 1M; a power of two), bound to
    /// vfio-pci with the NICs. COMMAND finds its address as UVIA_ADAPTER_MEMORY
    #[arg(long, value_name = "SIZE", value_parser = adapter_memory)]
    adapter_memory: Option<u64>,
    /// Processors of each guest
    #[arg(long, value_name = "N", default_value_t = 2)]
    vcpus: u32,
    /// Memory of each guest in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    memory: u32,
    /// Hugepages of 2 MiB reserved in each guest
    #[arg(long, value_name = "N", default_value_t = 0)]
    hugepages: u32,
    /// How the guests' processors are run; auto takes KVM if a guest really boots under it
    #[arg(long, value_enum, default_value = "auto", env = "UVIA_VM_ACCEL")]
    accel: Accel,
    /// End the guests after so many seconds, booting included
    #[arg(long, value_name = "SECONDS", default_value_t = 900.0)]
    timeout: f64,
    /// Write each guest's console to DIR/console-N.log too
    #[arg(long, value_name = "DIR")]
    keep_log: Option<PathBuf>,
    /// QEMU [default: qemu-system-x86_64 on PATH, or for models one that is fetched]
    #[arg(long, value_name = "PATH")]
    qemu: Option<PathBuf>,
    /// A further word for QEMU's command line; may be repeated
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    qemu_arg: Vec<String>,
    /// A further word for the command line of uvia-device, which serves models; may be repeated
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    device_arg: Vec<String>,
    /// The guest's kernel image, instead of Debian's, which is fetched
    #[arg(long, value_name = "PATH")]
    kernel: Option<PathBuf>,
    /// The folder lib/modules/VERSION that belongs to --kernel
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// A statically linked busybox, instead of Debian's, which is fetched
    #[arg(long, value_name = "PATH")]
    busybox: Option<PathBuf>,
    /// Where what is fetched is kept, instead of vm/ in Cargo's target folder
    #[arg(long, value_name = "DIR", env = "UVIA_VM_CACHE")]
    cache: Option<PathBuf>,
    /// Without COMMAND: the file that the guests move, instead of their kernel's image
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    file: Option<PathBuf>,
    /// The command and its arguments; without one, two guests move a file over virtual interfaces, and a
    /// table of latencies is printed
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The launcher.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // 2 might be COMMAND's status; the launcher's failures are always 125.
            let fine = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return ExitCode::from(if fine { 0 } else { 125 });
        }
    };
    let result = signals::install().and_then(|()| run(cli));
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("uvia-vm: {error}");
            ExitCode::from(error.status())
        }
    }
}

fn run(cli: Cli) -> crate::Result<u8> {
    let limit = Duration::try_from_secs_f64(cli.timeout)
        .map_err(|error| crate::Error::Usage(format!("--timeout {}: {error}", cli.timeout)))?;
    let settings = Settings {
        guests: cli.guests.unwrap_or(1),
        nics_each: cli.nics_each,
        nics: cli.nic,
        attach: cli.attach || !cli.no_attach,
        vcpus: cli.vcpus,
        memory_mib: cli.memory,
        hugepages: cli.hugepages,
        adapter_memory: cli.adapter_memory,
        accel: cli.accel,
        qemu: cli.qemu,
        kernel: cli.kernel,
        modules: cli.modules,
        busybox: cli.busybox,
        carry: cli.carry,
        load: cli.module,
        qemu_args: cli.qemu_arg,
        device_args: cli.device_arg,
        cache: cli.cache,
        tools: None,
        keep_log: cli.keep_log,
        verbose: true,
        ..Settings::default()
    };
    if !cli.command.is_empty() {
        return command::run(&settings, &cli.command, limit);
    }
    if cli.guests.is_some_and(|guests| guests != 2) || cli.nics_each != 1 || cli.no_attach {
        return Err(crate::Error::Usage(
            "without a COMMAND after --, two guests move a file: leave --guests, --nics-each and --no-attach out"
                .into(),
        ));
    }
    main_job::run(&settings, cli.file.as_deref(), limit)
}

/// Bytes of adapter memory, as they are written.
fn adapter_memory(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|bytes| bytes.is_power_of_two() && (4096..=64 << 20).contains(bytes))
        .ok_or_else(|| "a power of two of 4K to 64M, such as 1M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_help_says_is_so() {
        assert_eq!(
            uvia_tools::help::faults(&<Cli as clap::CommandFactory>::command(), &["qemu/run"]),
            [""; 0]
        );
    }

    #[test]
    fn it_is_called_as_people_start_it_whatever_its_file_is_called() {
        for word in ["--help", "-h", "--no-such-option"] {
            let told = Cli::try_parse_from(["/target/release/uvia-vm", word]).unwrap_err().to_string();
            assert!(told.contains("Usage: qemu/run [OPTIONS]") && !told.contains("uvia-vm"), "{told}");
        }
    }

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("qemu/run").chain(args.iter().copied()))
    }

    #[test]
    fn adapter_memory_is_a_power_of_two() {
        assert_eq!(parse(&["--adapter-memory", "1M", "--", "true"]).unwrap().adapter_memory, Some(1 << 20));
        assert_eq!(adapter_memory("64K"), Ok(64 << 10));
        for wrong in ["", "M", "3M", "2K", "128M", "-1M", "99999999999999999999"] {
            assert!(adapter_memory(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_the_dashes_is_taken_verbatim() {
        let cli = parse(&["--nic", "e1000,virtio", "--", "sh", "--nic", "", "--", "a b"]).unwrap();
        assert_eq!(cli.nic, [NicKind::E1000, NicKind::Virtio]);
        assert_eq!(cli.command, ["sh", "--nic", "", "--", "a b"]);
        assert!(parse(&["--nic", "ne2000"]).is_err());
    }
}
