//! A layer between SQLite and its files: it records what is written and synced, and fails on demand.
//!
//! SQLite has no safe interface for that, so the little unsafe code that it takes stands here and nowhere else. The
//! layer is a copy of SQLite's own file system table whose `xOpen` puts five functions of ours
//! before its own.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once};

use rusqlite::ffi;

/// One step of what a disk was asked, in order.
#[derive(Debug, Clone)]
pub enum Step {
    Write {
        file: String,
        at: usize,
        data: Vec<u8>,
    },
    Truncate {
        file: String,
        size: usize,
    },
    Sync {
        file: String,
    },
    Delete {
        file: String,
    },
    /// A client got the answer to its write number so-and-so.
    Acknowledged(usize),
}

/// A folder under the layer.
pub struct Disk {
    folder: PathBuf,
    steps: Mutex<Vec<Step>>,
    /// Writes fail as on a disk that is full but for the store's reserve.
    pub full: AtomicBool,
    /// Syncs fail.
    pub broken: AtomicBool,
    /// Connections opened from now on sync as with `synchronous=NORMAL`, whatever they ask for.
    pub lax: AtomicBool,
}

impl Disk {
    /// Puts a folder under the layer, for files opened from now on.
    pub fn watch(folder: &Path) -> Arc<Self> {
        static LAYER: Once = Once::new();
        LAYER.call_once(install);
        let disk = Arc::new(Self {
            folder: folder.to_owned(),
            steps: Mutex::default(),
            full: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            lax: AtomicBool::new(false),
        });
        DISKS.lock().unwrap().push(Arc::clone(&disk));
        disk
    }

    pub fn note(&self, step: Step) {
        self.steps.lock().unwrap().push(step);
    }

    pub fn take_steps(&self) -> Vec<Step> {
        std::mem::take(&mut self.steps.lock().unwrap())
    }
}

static DISKS: Mutex<Vec<Arc<Disk>>> = Mutex::new(Vec::new());
static OPEN: Mutex<Option<HashMap<usize, Opened>>> = Mutex::new(None);

/// An open file: whose it is, and SQLite's own functions for it.
#[derive(Clone)]
struct Opened {
    disk: Arc<Disk>,
    name: String,
    inner: &'static ffi::sqlite3_io_methods,
}

fn opened(file: *mut ffi::sqlite3_file) -> Opened {
    OPEN.lock().unwrap().as_ref().and_then(|all| all.get(&(file as usize))).cloned().expect("an open file")
}

fn install() {
    // SAFETY: the default table lives as long as the process and is read only after SQLite's own start, which
    // `sqlite3_vfs_find` sees to; the copy is leaked, so it lives as long.
    unsafe {
        let inner = ffi::sqlite3_vfs_find(std::ptr::null());
        let mut copy = *inner;
        copy.zName = c"layer".as_ptr();
        copy.pNext = std::ptr::null_mut();
        copy.xOpen = Some(open);
        copy.xDelete = Some(delete);
        assert_eq!(ffi::sqlite3_vfs_register(Box::leak(Box::new(copy)), 1), ffi::SQLITE_OK);
        assert_eq!(ffi::sqlite3_auto_extension(Some(opened_connection)), ffi::SQLITE_OK);
    }
}

/// Called by SQLite with each new connection.
unsafe extern "C" fn opened_connection(
    connection: *mut ffi::sqlite3,
    _: *mut *mut c_char,
    _: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: the connection is open and this thread's own while SQLite calls this; its file name is a C string.
    unsafe {
        let name = ffi::sqlite3_db_filename(connection, c"main".as_ptr());
        if name.is_null() {
            return ffi::SQLITE_OK;
        }
        let path = PathBuf::from(CStr::from_ptr(name).to_string_lossy().into_owned());
        let lax = |d: &&Arc<Disk>| path.starts_with(&d.folder) && d.lax.load(Ordering::SeqCst);
        if !DISKS.lock().unwrap().iter().any(|d| lax(&d)) {
            return ffi::SQLITE_OK;
        }
        let normal = c"PRAGMA synchronous=NORMAL".as_ptr();
        ffi::sqlite3_exec(connection, normal, None, std::ptr::null_mut(), std::ptr::null_mut())
    }
}

/// Passes over `PRAGMA synchronous=FULL` on a lax disk: SQLite asks a file about each pragma first.
unsafe extern "C" fn file_control(file: *mut ffi::sqlite3_file, op: c_int, argument: *mut c_void) -> c_int {
    let this = opened(file);
    // SAFETY: for this operation SQLite gives an array of C strings, of which the second is the pragma's name and the
    // third its value or null; all else is for its own function.
    unsafe {
        if op == ffi::SQLITE_FCNTL_PRAGMA && this.disk.lax.load(Ordering::SeqCst) {
            let words = argument.cast::<*const c_char>();
            let (name, value) = (*words.add(1), *words.add(2));
            if CStr::from_ptr(name) == c"synchronous" && !value.is_null() && CStr::from_ptr(value) == c"FULL" {
                return ffi::SQLITE_OK;
            }
        }
        this.inner.xFileControl.expect("xFileControl")(file, op, argument)
    }
}

fn default_vfs() -> *mut ffi::sqlite3_vfs {
    // SAFETY: the name is a C string; the table it names is SQLite's own and never goes away.
    unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) }
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: all arguments are SQLite's, for a table of the same layout and file size as its own; `pMethods` of an
    // opened file points to a table that lives as long as the process.
    unsafe {
        let default_vfs = default_vfs();
        let code = (*default_vfs).xOpen.expect("xOpen")(default_vfs, name, file, flags, out_flags);
        if code != ffi::SQLITE_OK || name.is_null() || (*file).pMethods.is_null() {
            return code;
        }
        let path = PathBuf::from(CStr::from_ptr(name).to_string_lossy().into_owned());
        let disk = DISKS.lock().unwrap().iter().find(|d| path.starts_with(&d.folder)).cloned();
        let Some(disk) = disk else { return code };
        let methods: &'static ffi::sqlite3_io_methods = &*(*file).pMethods;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        OPEN.lock().unwrap().get_or_insert_default().insert(file as usize, Opened { disk, name, inner: methods });
        let mut ours = *methods;
        ours.xWrite = Some(write);
        ours.xTruncate = Some(truncate);
        ours.xSync = Some(sync);
        ours.xClose = Some(close);
        ours.xFileControl = Some(file_control);
        (*file).pMethods = Box::leak(Box::new(ours));
        code
    }
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: SQLite gives a C string, which its own function takes as well.
    unsafe {
        let path = PathBuf::from(CStr::from_ptr(name).to_string_lossy().into_owned());
        if let Some(disk) = DISKS.lock().unwrap().iter().find(|d| path.starts_with(&d.folder)) {
            disk.note(Step::Delete { file: path.file_name().unwrap_or_default().to_string_lossy().into_owned() });
        }
        let default_vfs = default_vfs();
        (*default_vfs).xDelete.expect("xDelete")(default_vfs, name, sync)
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, data: *const c_void, length: c_int, at: i64) -> c_int {
    let this = opened(file);
    // The room that the server keeps is room for SQLite once its file is gone.
    let kept = this.disk.folder.join("store.reserve").exists();
    if this.disk.full.load(Ordering::SeqCst) && kept {
        return ffi::SQLITE_FULL;
    }
    // SAFETY: SQLite gives `length` readable bytes at `data`, and a file that its own function knows.
    unsafe {
        let bytes = std::slice::from_raw_parts(data.cast::<u8>(), usize::try_from(length).unwrap());
        let at_byte = usize::try_from(at).unwrap();
        this.disk.note(Step::Write { file: this.name.clone(), at: at_byte, data: bytes.to_vec() });
        this.inner.xWrite.expect("xWrite")(file, data, length, at)
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    let this = opened(file);
    this.disk.note(Step::Truncate { file: this.name.clone(), size: usize::try_from(size).unwrap() });
    // SAFETY: the file is one that SQLite's own function knows.
    unsafe { this.inner.xTruncate.expect("xTruncate")(file, size) }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let this = opened(file);
    if this.disk.broken.load(Ordering::SeqCst) {
        return ffi::SQLITE_IOERR_FSYNC;
    }
    // SAFETY: the file is one that SQLite's own function knows.
    let code = unsafe { this.inner.xSync.expect("xSync")(file, flags) };
    this.disk.note(Step::Sync { file: this.name });
    code
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let this = opened(file);
    OPEN.lock().unwrap().get_or_insert_default().remove(&(file as usize));
    // SAFETY: the file is one that SQLite's own function knows, and nothing uses it afterwards.
    unsafe { this.inner.xClose.expect("xClose")(file) }
}
