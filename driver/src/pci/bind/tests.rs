//! Attach and detach on a made-up machine, whose kernel does what ours does.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::rc::Rc;

use super::*;
use crate::pci::fake::FakeSysfs;

const NIC: &str = "0000:01:00.0";
const ETHERNET: u32 = 0x020000;

#[derive(Default)]
struct Behaviour {
    /// The driver that the kernel chooses for a function, by address.
    natural: BTreeMap<String, String>,
    /// Drivers that take nothing.
    broken: BTreeSet<String>,
    /// Modules that do not exist.
    missing: BTreeSet<String>,
    unprivileged: bool,
    /// Something that procfs does not show has the function open.
    busy: bool,
    /// Drivers wait for the function's users.
    waits: bool,
    /// Modules asked for.
    loaded: Vec<String>,
}

struct FakeHost {
    fake: Rc<FakeSysfs>,
    behaviour: Rc<RefCell<Behaviour>>,
}

impl FakeHost {
    fn driver_of(&self, address: &str) -> Option<String> {
        self.fake.sysfs().function(address.parse().unwrap()).unwrap().driver
    }

    fn take(&self, address: &str, driver: &str) -> io::Result<()> {
        let function = self.fake.sysfs().function(address.parse().unwrap()).unwrap();
        let allowed = function.driver_override.as_deref().is_none_or(|only| only == driver);
        let loaded = self.fake.sysfs().driver_path(driver).exists();
        if !allowed || !loaded || function.driver.is_some() || self.behaviour.borrow().broken.contains(driver)
        {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        self.fake.set_driver(address, Some(driver));
        Ok(())
    }
}

impl Host for FakeHost {
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let file = path.file_name().unwrap().to_str().unwrap();
        let parent = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
        match file {
            "driver_override" => {
                let text = text.trim();
                fs::write(path, if text.is_empty() { "(null)\n" } else { text })
            }
            "bind" => self.take(text, parent),
            "drivers_probe" => {
                let function = self.fake.sysfs().function(text.parse().unwrap()).unwrap();
                let natural = self.behaviour.borrow().natural.get(text).cloned();
                if let Some(driver) = function.driver_override.or(natural) {
                    let _ = self.take(text, &driver); // as the kernel: a probe that fails is no error
                }
                Ok(())
            }
            _ => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }

    fn unbind(&self, path: &Path, address: &str, _limit: Duration) -> io::Result<()> {
        let driver = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
        if self.behaviour.borrow().waits {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if self.driver_of(address).as_deref() != Some(driver) {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        self.fake.set_driver(address, None);
        Ok(())
    }

    fn group_is_busy(&self, _group: u32) -> bool {
        self.behaviour.borrow().busy
    }

    fn load_module(&self, name: &str) -> io::Result<()> {
        self.behaviour.borrow_mut().loaded.push(name.to_owned());
        if self.behaviour.borrow().missing.contains(name) {
            return Err(io::Error::other(format!("modprobe: FATAL: Module {name} not found")));
        }
        self.fake.add_driver(name);
        Ok(())
    }

    fn has_module(&self, name: &str) -> bool {
        !self.behaviour.borrow().missing.contains(name)
    }

    fn is_privileged(&self) -> bool {
        !self.behaviour.borrow().unprivileged
    }
}

struct Machine {
    fake: Rc<FakeSysfs>,
    behaviour: Rc<RefCell<Behaviour>>,
    binder: Binder,
}

impl Machine {
    /// One e1000 in a group of its own.
    fn new() -> Self {
        let fake = Rc::new(FakeSysfs::new());
        fake.add(NIC, "8086:100e", ETHERNET, Some("e1000"), Some(1));
        fake.add_interface(NIC, "eth0");
        let behaviour = Rc::new(RefCell::new(Behaviour::default()));
        behaviour.borrow_mut().natural.insert(NIC.to_owned(), "e1000".to_owned());
        let host = FakeHost { fake: fake.clone(), behaviour: behaviour.clone() };
        let binder = Binder::new(fake.sysfs(), fake.path("proc"), fake.path("run/uvia/bind"), Box::new(host));
        Self { fake, behaviour, binder }
    }

    fn function(&self, name: &str) -> Function {
        self.fake.sysfs().function(name.parse().unwrap()).unwrap()
    }

    fn driver(&self) -> Option<String> {
        self.function(NIC).driver
    }

    fn attach(&self) -> Result<Attached> {
        self.binder.attach(NIC.parse().unwrap(), false)
    }

    fn detach(&self) -> Result<Detached> {
        self.binder.detach(NIC.parse().unwrap())
    }

    fn write(&self, below: &str, text: &str) {
        let path = self.fake.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The function is as it was made.
    fn untouched(&self) {
        let function = self.function(NIC);
        assert_eq!((function.driver.as_deref(), function.driver_override), (Some("e1000"), None));
        assert!(!self.fake.path("run/uvia/bind").join(NIC).exists());
    }
}

#[test]
fn there_and_back() {
    let machine = Machine::new();
    let done = machine.attach().unwrap();
    assert_eq!(done, Attached::Done { former: Some("e1000".to_owned()), warnings: vec![] });
    assert_eq!(machine.driver().as_deref(), Some("vfio-pci"));
    assert_eq!(machine.behaviour.borrow().loaded, ["vfio-pci", "vfio_iommu_type1"]);
    assert_eq!(machine.attach().unwrap(), Attached::Already);
    assert_eq!(machine.detach().unwrap(), Detached::Done(Some("e1000".to_owned())));
    machine.untouched();
    assert_eq!(machine.detach().unwrap(), Detached::Already(Some("e1000".to_owned())));
}

#[test]
fn a_driver_chosen_by_hand_comes_back() {
    let machine = Machine::new();
    machine.fake.add_driver("uio_pci_generic");
    machine.fake.set_driver(NIC, Some("uio_pci_generic"));
    machine.write(&format!("bus/pci/devices/{NIC}/driver_override"), "uio_pci_generic\n");
    machine.attach().unwrap();
    assert_eq!(machine.detach().unwrap(), Detached::Done(Some("uio_pci_generic".to_owned())));
    assert_eq!(machine.function(NIC).driver_override.as_deref(), Some("uio_pci_generic"));
}

#[test]
fn one_without_a_driver_goes_back_to_none() {
    let machine = Machine::new();
    machine.fake.set_driver(NIC, None);
    machine.attach().unwrap();
    assert_eq!(machine.detach().unwrap(), Detached::Done(None));
    assert_eq!(machine.function(NIC).driver_override, None);
}

#[test]
fn without_a_memory_the_kernel_chooses() {
    for damage in
        [None, Some("garbage"), Some("ids=8086:100f\ndriver=igb\n"), Some("ids=8086:100e\ndriver=../x\n")]
    {
        let machine = Machine::new();
        machine.attach().unwrap();
        let record = format!("run/uvia/bind/{NIC}");
        match damage {
            None => fs::remove_file(machine.fake.path(&record)).unwrap(),
            Some(text) => machine.write(&record, text),
        }
        assert_eq!(machine.detach().unwrap(), Detached::Done(Some("e1000".to_owned())), "{damage:?}");
        machine.untouched();
    }
}

#[test]
fn what_stops_an_attach_leaves_all_as_it_was() {
    let refused = |machine: &Machine, words: &str| {
        let error = machine.attach().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        machine.untouched();
    };

    let machine = Machine::new();
    machine.behaviour.borrow_mut().unprivileged = true;
    refused(&machine, "needs root");

    let machine = Machine::new();
    machine.behaviour.borrow_mut().missing.insert("vfio-pci".to_owned());
    refused(&machine, "Module vfio-pci not found");

    let machine = Machine::new();
    machine.behaviour.borrow_mut().broken.insert("vfio-pci".to_owned());
    refused(&machine, "vfio-pci did not take it (it is on no driver)");

    let machine = Machine::new();
    machine.write(
        "proc/net/route",
        "Iface\tDestination\nbr0\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n",
    );
    assert!(matches!(machine.attach(), Ok(Attached::Done { .. })), "another interface's route");
    let machine = Machine::new();
    machine.write(
        "proc/net/route",
        "Iface\tDestination\nbr0\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n",
    );
    let bridge = machine.fake.path("class/net/br0");
    fs::create_dir_all(&bridge).unwrap();
    symlink("../eth0", bridge.join("lower_eth0")).unwrap();
    refused(&machine, "carries the default route (interface eth0)");
    assert!(machine.binder.attach(NIC.parse().unwrap(), true).is_ok());

    let machine = Machine::new();
    fs::remove_file(machine.fake.path(&format!("bus/pci/devices/{NIC}/iommu_group"))).unwrap();
    refused(&machine, "in no IOMMU group");
}

#[test]
fn what_stops_a_detach_leaves_it_attached() {
    let machine = Machine::new();
    machine.attach().unwrap();
    machine.write("proc/77/comm", "testpmd\n");
    fs::create_dir_all(machine.fake.path("proc/77/fd")).unwrap();
    symlink("/dev/vfio/1", machine.fake.path("proc/77/fd/4")).unwrap();
    let error = machine.detach().unwrap_err().to_string();
    assert!(error.contains("in use by process 77 (testpmd)"), "{error}");
    fs::remove_dir_all(machine.fake.path("proc/77")).unwrap();

    machine.behaviour.borrow_mut().broken.insert("e1000".to_owned());
    let error = machine.detach().unwrap_err().to_string();
    assert!(error.contains("drivers/e1000/bind"), "{error}");
    assert_eq!(machine.driver().as_deref(), Some("vfio-pci"));
    machine.behaviour.borrow_mut().broken.clear();
    assert_eq!(machine.detach().unwrap(), Detached::Done(Some("e1000".to_owned())));
}

#[test]
fn one_that_is_in_use_by_nobody_knows_whom_stays_attached() {
    let machine = Machine::new();
    machine.attach().unwrap();
    machine.behaviour.borrow_mut().busy = true;
    let error = machine.detach().unwrap_err().to_string();
    assert!(error.contains("in use by a process that cannot be seen"), "{error}");
    machine.write("proc/78/comm", "testpmd\n");
    machine.write("proc/78/maps", "7f00-7f01 rw-s 0 00:0d 9 anon_inode:[vfio-device]\n");
    let error = machine.detach().unwrap_err().to_string();
    assert!(error.contains("in use by process 78 (testpmd)"), "{error}");
    assert_eq!(machine.driver().as_deref(), Some("vfio-pci"));
}

#[test]
fn a_detach_that_the_kernel_finishes_later_can_be_completed() {
    let machine = Machine::new();
    machine.attach().unwrap();
    machine.behaviour.borrow_mut().waits = true;
    let error = machine.detach().unwrap_err();
    assert!(matches!(&error, BindError::Pending { .. }), "{error}");
    machine.behaviour.borrow_mut().waits = false;
    machine.fake.set_driver(NIC, None);
    assert_eq!(machine.detach().unwrap(), Detached::Done(Some("e1000".to_owned())));
    machine.untouched();
}

#[test]
fn a_detach_that_was_cut_off_may_be_given_up() {
    let machine = Machine::new();
    machine.attach().unwrap();
    machine.write(&format!("bus/pci/devices/{NIC}/driver_override"), "(null)\n");
    machine.fake.set_driver(NIC, None);
    machine.attach().unwrap();
    assert_eq!(machine.detach().unwrap(), Detached::Done(Some("e1000".to_owned())));
    machine.untouched();
}

#[test]
fn an_attach_that_was_cut_off_is_undone() {
    let machine = Machine::new();
    machine.write(&format!("bus/pci/devices/{NIC}/driver_override"), "vfio-pci\n");
    machine.fake.set_driver(NIC, None);
    assert_eq!(machine.detach().unwrap(), Detached::Done(Some("e1000".to_owned())));
    machine.untouched();
}

#[test]
fn an_attach_that_was_cut_off_can_be_finished() {
    let machine = Machine::new();
    machine.write(&format!("bus/pci/devices/{NIC}/driver_override"), "vfio-pci\n");
    machine.fake.set_driver(NIC, None);
    machine.attach().unwrap();
    assert_eq!(machine.driver().as_deref(), Some("vfio-pci"));
    assert_eq!(machine.detach().unwrap(), Detached::Done(Some("e1000".to_owned())));
    machine.untouched();
}

#[test]
fn other_devices_are_left_alone() {
    let machine = Machine::new();
    machine.fake.add("0000:00:1f.2", "8086:2922", 0x010601, Some("ahci"), Some(2));
    let disk = "0000:00:1f.2".parse().unwrap();
    assert!(matches!(machine.binder.attach(disk, true), Err(BindError::NotNetwork { .. })));
    assert!(matches!(machine.binder.detach(disk), Err(BindError::NotNetwork { .. })));
    assert!(matches!(machine.binder.resolve("0000:05:00.0"), Err(BindError::Unknown { .. })));
    assert!(matches!(machine.binder.resolve("eth7"), Err(BindError::Unknown { .. })));
    assert_eq!(machine.binder.resolve("eth0").unwrap().to_string(), NIC);
    assert_eq!(machine.binder.resolve("01:00.0").unwrap().to_string(), NIC);
}

#[test]
fn status_tells_what_stands_in_the_way() {
    let machine = Machine::new();
    machine.fake.add("0000:01:00.1", "8086:100e", ETHERNET, Some("e1000"), Some(1));
    machine.fake.add("0000:02:00.0", "8086:100e", ETHERNET, Some("vfio-pci"), None);
    let all = machine.binder.status().unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!(all[0].siblings, [("01:00.1".parse().unwrap(), Some("e1000".to_owned()))]);
    let sibling = Obstacle::Sibling("01:00.1".parse().unwrap(), "e1000".to_owned());
    assert_eq!(all[0].obstacles, std::slice::from_ref(&sibling));
    assert_eq!(all[2].obstacles, [Obstacle::NoIommu]);
    assert!(sibling.to_string().contains("0000:01:00.1 of the same group is on e1000"));
    match machine.attach().unwrap() {
        Attached::Done { warnings, .. } => {
            assert!(warnings[0].contains("cannot be opened while 0000:01:00.1"))
        }
        other => panic!("{other:?}"),
    }

    let machine = Machine::new();
    machine.behaviour.borrow_mut().missing.insert("vfio-pci".to_owned());
    assert_eq!(machine.binder.status().unwrap()[0].obstacles, [Obstacle::NoModule]);
}
