/* Process 1 of the boot test: says on the console what it finds, loads the modules it is told to, powers off. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <errno.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void show(const char *title, const char *path) {
    char text[4096];
    int file = open(path, O_RDONLY);
    ssize_t len = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (len < 0) {
        printf("%s=<%s>\n", title, strerror(errno));
        return;
    }
    text[len] = 0;
    printf("%s=%s\n", title, text);
    close(file);
}

int main(void) {
    char line[512];
    mount("proc", "/proc", "proc", 0, "");
    mount("sysfs", "/sys", "sysfs", 0, "");
    mount("devtmpfs", "/dev", "devtmpfs", 0, "");
    mount("securityfs", "/sys/kernel/security", "securityfs", 0, "");
    printf("BEGIN pid=%d\n", getpid());
    show("HOST", "/metamorph/host.json");
    show("LOCKDOWN", "/sys/kernel/security/lockdown");
    show("CMDLINE", "/proc/cmdline");
    FILE *list = fopen("/metamorph/modules", "r");
    while (list && fgets(line, sizeof line, list)) {
        line[strcspn(line, "\n")] = 0;
        int file = open(line, O_RDONLY | O_CLOEXEC);
        long result = file < 0 ? -1 : syscall(SYS_finit_module, file, "", 0);
        printf("MODULE %s %s\n", strrchr(line, '/') + 1, result == 0 ? "loaded" : strerror(errno));
        if (file >= 0) close(file);
    }
    mkdir("/run/efivars", 0755);
    printf("EFIVARFS %s\n", mount("efivarfs", "/run/efivars", "efivarfs", 0, "") == 0 ? "mounted" : strerror(errno));
    DIR *disks = opendir("/sys/class/block");
    for (struct dirent *entry; disks && (entry = readdir(disks));)
        if (entry->d_name[0] != '.') {
            printf("DISK %s\n", entry->d_name);
            snprintf(line, sizeof line, "/dev/%s", entry->d_name);
            if (mount(line, "/tmp", "vfat", MS_RDONLY, "") == 0) show("VFAT", "/tmp/hello.txt");
        }
    DIR *links = opendir("/sys/class/net");
    for (struct dirent *entry; links && (entry = readdir(links));)
        if (entry->d_name[0] != '.') printf("LINK %s\n", entry->d_name);
    printf("END\n");
    fflush(stdout);
    sync();
    reboot(RB_POWER_OFF);
    return 1;
}
