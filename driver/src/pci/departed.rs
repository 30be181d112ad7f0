//! Whether a device can no longer reach the memory of a process that had it: for whoever is to be given that memory.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::config::{COMMAND, COMMAND_BUS_MASTER};
use super::{Sysfs, Way, kernel, vfio_user, way};

/// Whether the device called `name` masters the bus for process `owner` no more. Of an owner that is dead, the kernel may
/// still be closing the files.
///
/// Function of this machine: its command register says that it is no bus master, or its group is in the hands of another
/// process, which cannot have got it before. Served ones: their server takes a new client, or is gone. Others live in
/// their process, and are gone with it.
pub(crate) fn has_let_go(name: &str, owner: u32) -> bool {
    match way(name) {
        Ok(Way::Kernel(address)) => {
            let sysfs = Sysfs::default();
            let Ok(function) = sysfs.function(address) else { return true };
            if masters_the_bus(&sysfs.function_path(address)) == Some(false) {
                return true;
            }
            let holders = function.group.map(|group| kernel::holders(Path::new("/proc"), group));
            holders.is_some_and(|holders| holders.iter().any(|(process, _)| *process != owner))
        }
        Ok(Way::VfioUser) => vfio_user::takes_clients(name, Duration::from_millis(200)),
        Err(_) => is_over(owner),
    }
}

/// The bus master bit of a function, as configuration space has it; `None` when it cannot be read. A function that is
/// gone reads all-ones: it masters nothing.
fn masters_the_bus(function: &Path) -> Option<bool> {
    let bytes = fs::read(function.join("config")).ok()?;
    let command = bytes.get(usize::from(COMMAND)..)?.first_chunk::<2>().copied().map(u16::from_le_bytes)?;
    Some(command != u16::MAX && command & COMMAND_BUS_MASTER != 0)
}

/// Whether a process has ended, but for being waited for.
fn is_over(process: u32) -> bool {
    match fs::read_to_string(format!("/proc/{process}/stat")) {
        // The state follows the name, which is in parentheses and may hold any.
        Ok(text) => text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_register_tells() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(masters_the_bus(folder.path()), None);
        let mut bytes = [0; 64];
        for (command, masters) in [(0x0002u16, false), (0x0006, true), (0xffff, false)] {
            bytes[4..6].copy_from_slice(&command.to_le_bytes());
            fs::write(folder.path().join("config"), bytes).unwrap();
            assert_eq!(masters_the_bus(folder.path()), Some(masters));
        }
    }

    #[test]
    fn what_lives_in_a_process_is_gone_with_it() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!has_let_go("memory0", child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_let_go("memory0", child.id()));
        assert!(has_let_go("vfio-user:/nobody/is/here", child.id()), "a server that is gone does nothing");
    }
}
