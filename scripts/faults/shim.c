/* Stands between a process and the C library, and kills it at, or fails, the n-th call that changes files.
 *
 * Built by shim.py and loaded with LD_PRELOAD. It does nothing until shim_arm is given a plan, which is shared
 * with the parent process (see plan.py). Calls below the plan's folder are counted; the first one elsewhere is
 * noted, but for devices and the standard streams.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum action { WATCH, KILL_BEFORE, KILL_AFTER, KILL_MIDST, FAIL_ONCE, FAIL_ON };
enum verdict { PASS, REFUSE, DIE, HALVE };

struct plan {
    long action, at, error, later;       /* What to do, at which call, with which errno, and which after it. */
    long calls;                          /* How many there were. */
    char folder[PATH_MAX];               /* Where they count. */
    char struck[PATH_MAX + 32];          /* The call that was struck, and its path. */
    char elsewhere[PATH_MAX + 32];       /* The first call outside of the folder. */
};

static struct plan *plan;

void shim_arm(struct plan *given) { plan = given; }

/* A descriptor's path; empty for a pipe or a device. */
static void path_of(int fd, char *path) {
    char link[64];
    struct stat found;
    path[0] = 0;
    if (fd <= 2 || fstat(fd, &found) || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
}

/* Where `name`, relative to the folder `fd`, really is: links on the way are followed, one at the end is not.
 * Empty where its folder does not exist, so that the call must fail by itself. */
static void place_of(int fd, const char *name, char *place) {
    char whole[PATH_MAX * 2], *last;
    char folder[PATH_MAX];
    if (name[0] == '/' || fd == AT_FDCWD) {
        snprintf(whole, sizeof whole, "%s%s", strchr(name, '/') ? "" : "./", name);
    } else {
        snprintf(folder, sizeof folder, "/proc/self/fd/%d", fd);
        snprintf(whole, sizeof whole, "%s/%s", folder, name);
    }
    last = strrchr(whole, '/');
    *last = 0;
    if (!realpath(whole[0] ? whole : "/", place)) { place[0] = 0; return; }
    strncat(place, "/", PATH_MAX - strlen(place) - 1);
    strncat(place, last + 1, PATH_MAX - strlen(place) - 1);
}

static int is_below(const char *path) {
    size_t length = strlen(plan->folder);
    return !strncmp(path, plan->folder, length) && (path[length] == '/' || !path[length]);
}

static void note(const char *call, const char *path) {
    if (!plan->elsewhere[0]) snprintf(plan->elsewhere, sizeof plan->elsewhere, "%s %s", call, path);
}

/* A link may have led away. */
static void note_if_elsewhere(const char *call, int fd) {
    char path[PATH_MAX];
    path_of(fd, path);
    if (path[0] && strncmp(path, "/dev/", 5) && strncmp(path, "/proc/", 6) && !is_below(path)) note(call, path);
}

static enum verdict judge(const char *call, const char *path, int is_write) {
    if (!plan || !path[0] || !strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6)) return PASS;
    if (!is_below(path)) {
        note(call, path);
        return PASS;
    }
    long n = __sync_add_and_fetch(&plan->calls, 1);
    if (plan->action == WATCH || n < plan->at || (n > plan->at && plan->action != FAIL_ON)) return PASS;
    if (n == plan->at) snprintf(plan->struck, sizeof plan->struck, "%s %s", call, path);
    switch (plan->action) {
        case KILL_BEFORE: kill(getpid(), SIGKILL); return REFUSE;
        case KILL_AFTER: return DIE;
        case KILL_MIDST: return is_write ? HALVE : DIE;
        default: errno = (int)(n == plan->at ? plan->error : plan->later); return REFUSE;
    }
}

static void finish(enum verdict verdict) {
    if (verdict == DIE || verdict == HALVE) kill(getpid(), SIGKILL);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, name)

#define GO(type, name, path, is_write, call) do { \
    enum verdict verdict = judge(name, path, is_write); \
    if (verdict == REFUSE) return -1; \
    type result = call; \
    finish(verdict); \
    return result; \
} while (0)

/* Calls that name a file. */

#define PATH_CALL(name, parameters, arguments, types, fd, path) \
int name parameters { \
    REAL(int, #name, types); \
    if (!plan) return real arguments; \
    char place[PATH_MAX]; \
    place_of(fd, path, place); \
    GO(int, #name, place, 0, real arguments); \
}
#define TYPES(...) __VA_ARGS__

PATH_CALL(rename, (const char *from, const char *to), (from, to),
          TYPES(const char *, const char *), AT_FDCWD, to)
PATH_CALL(renameat, (int a, const char *from, int b, const char *to), (a, from, b, to),
          TYPES(int, const char *, int, const char *), b, to)
PATH_CALL(renameat2, (int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags),
          TYPES(int, const char *, int, const char *, unsigned), b, to)
PATH_CALL(link, (const char *from, const char *to), (from, to),
          TYPES(const char *, const char *), AT_FDCWD, to)
PATH_CALL(linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags),
          TYPES(int, const char *, int, const char *, int), b, to)
PATH_CALL(symlink, (const char *from, const char *to), (from, to),
          TYPES(const char *, const char *), AT_FDCWD, to)
PATH_CALL(symlinkat, (const char *from, int fd, const char *to), (from, fd, to),
          TYPES(const char *, int, const char *), fd, to)
PATH_CALL(unlink, (const char *path), (path), TYPES(const char *), AT_FDCWD, path)
PATH_CALL(unlinkat, (int fd, const char *path, int flags), (fd, path, flags),
          TYPES(int, const char *, int), fd, path)
PATH_CALL(rmdir, (const char *path), (path), TYPES(const char *), AT_FDCWD, path)
PATH_CALL(mkdir, (const char *path, mode_t mode), (path, mode), TYPES(const char *, mode_t), AT_FDCWD, path)
PATH_CALL(mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode),
          TYPES(int, const char *, mode_t), fd, path)
PATH_CALL(truncate64, (const char *path, off64_t length), (path, length),
          TYPES(const char *, off64_t), AT_FDCWD, path)

/* Opening: only for writing does it count. */

#define OPEN_CALL(name, parameters, arguments, types, fd) \
int name parameters { \
    REAL(int, #name, types); \
    mode_t mode = 0; \
    if (flags & O_CREAT) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    } \
    if (!plan || !(flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))) return real arguments; \
    char place[PATH_MAX]; \
    place_of(fd, path, place); \
    enum verdict verdict = judge(#name, place, 0); \
    if (verdict == REFUSE) return -1; \
    int result = real arguments; \
    if (result > 2) note_if_elsewhere(#name, result); \
    finish(verdict); \
    return result; \
}

OPEN_CALL(open, (const char *path, int flags, ...), (path, flags, mode),
          TYPES(const char *, int, ...), AT_FDCWD)
OPEN_CALL(open64, (const char *path, int flags, ...), (path, flags, mode),
          TYPES(const char *, int, ...), AT_FDCWD)
OPEN_CALL(openat, (int fd, const char *path, int flags, ...), (fd, path, flags, mode),
          TYPES(int, const char *, int, ...), fd)
OPEN_CALL(openat64, (int fd, const char *path, int flags, ...), (fd, path, flags, mode),
          TYPES(int, const char *, int, ...), fd)

FILE *fopen64(const char *path, const char *mode) {
    REAL(FILE *, "fopen64", const char *, const char *);
    if (!plan || !strpbrk(mode, "wa+")) return real(path, mode);
    char place[PATH_MAX];
    place_of(AT_FDCWD, path, place);
    enum verdict verdict = judge("fopen64", place, 0);
    if (verdict == REFUSE) return NULL;
    FILE *result = real(path, mode);
    finish(verdict);
    return result;
}

/* Calls that have a file open. */

#define FILE_CALL(type, name, parameters, arguments, types) \
type name parameters { \
    REAL(type, #name, types); \
    if (!plan) return real arguments; \
    char path[PATH_MAX]; \
    path_of(fd, path); \
    GO(type, #name, path, 0, real arguments); \
}
#define WRITE_CALL(name, parameters, arguments, types, length) \
ssize_t name parameters { \
    REAL(ssize_t, #name, types); \
    if (!plan) return real arguments; \
    char path[PATH_MAX]; \
    path_of(fd, path); \
    enum verdict verdict = judge(#name, path, 1); \
    if (verdict == REFUSE) return -1; \
    if (verdict == HALVE) length /= 2; \
    ssize_t result = real arguments; \
    finish(verdict); \
    return result; \
}

FILE_CALL(int, fsync, (int fd), (fd), TYPES(int))
FILE_CALL(int, fdatasync, (int fd), (fd), TYPES(int))
FILE_CALL(int, ftruncate64, (int fd, off64_t length), (fd, length), TYPES(int, off64_t))
WRITE_CALL(write, (int fd, const void *data, size_t length), (fd, data, length),
           TYPES(int, const void *, size_t), length)
WRITE_CALL(pwrite64, (int fd, const void *data, size_t length, off64_t at), (fd, data, length, at),
           TYPES(int, const void *, size_t, off64_t), length)
WRITE_CALL(writev, (int fd, const struct iovec *parts, int count), (fd, parts, count),
           TYPES(int, const struct iovec *, int), count)
WRITE_CALL(sendfile64, (int fd, int from, off64_t *at, size_t length), (fd, from, at, length),
           TYPES(int, int, off64_t *, size_t), length)
WRITE_CALL(copy_file_range, (int from, off64_t *at, int fd, off64_t *to, size_t length, unsigned flags),
           (from, at, fd, to, length, flags), TYPES(int, off64_t *, int, off64_t *, size_t, unsigned), length)
