// SPDX-License-Identifier: MIT OR Apache-2.0
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "trace/replay/replay.h"

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static struct spent read_clocks(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (struct spent){.wall_s = (double)now_us() * 1e-6,
                          .cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime),
                          .minor_faults = usage.ru_minflt};
}

void spent_start(struct spent *spent) { *spent = read_clocks(); }

// Without what the samples took.
void spent_stop(struct spent *spent)
{
    struct spent now = read_clocks();
    double sampling_s = (double)atomic_load(&replay.sampling_ns) * 1e-9;
    *spent = (struct spent){.wall_s = now.wall_s - spent->wall_s - sampling_s,
                            .cpu_s = now.cpu_s - spent->cpu_s - sampling_s,
                            .minor_faults = now.minor_faults - spent->minor_faults};
}

static void print_series(const char *name, size_t field, uint64_t count)
{
    printf("\"%s\": [", name);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t *fields = (const void *)&replay.samples[i];
        printf("%s%llu", i == 0 ? "" : ", ", (unsigned long long)fields[field]);
    }
    printf("], ");
}

static void print_samples(void)
{
    uint64_t count =
        replay.sample_count < replay.head.samples ? replay.sample_count : replay.head.samples;
    uint64_t peak = 0, sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        peak = replay.samples[i].anonymous_bytes > peak ? replay.samples[i].anonymous_bytes : peak;
        sum += replay.samples[i].anonymous_bytes;
    }
    printf("\"peak_anonymous_bytes\": %llu, \"mean_anonymous_bytes\": %llu, ",
           (unsigned long long)peak, (unsigned long long)(count > 0 ? sum / count : 0));
    print_series("events_at", 0, count);
    print_series("live_bytes", 1, count);
    print_series("anonymous_bytes", 2, count);
    print_series("time_us", 3, count);
}

static const char *allocator(void)
{
    Dl_info where;
    void *address = dlsym(RTLD_DEFAULT, "malloc");
    return address != NULL && dladdr(address, &where) != 0 ? where.dli_fname : "unknown";
}

int report(const struct spent *spent, uint64_t end_bytes, uint64_t settled_bytes)
{
    const struct damage *damage = &replay.damage;
    bool is_whole = damage->contents == 0 && damage->sums == 0 && damage->refused == 0;
    printf("{\"schema\": 1, \"allocator\": \"%s\", \"events\": %llu, \"threads\": %u, ",
           allocator(), (unsigned long long)replay.head.events, replay.head.threads);
    printf("\"wall_s\": %.6f, \"cpu_s\": %.6f, \"minor_faults\": %ld, ", spent->wall_s,
           spent->cpu_s, spent->minor_faults);
    print_samples();
    printf("\"live_peak_bytes\": %llu, \"live_end_bytes\": %llu, ",
           (unsigned long long)replay.head.peak_bytes, (unsigned long long)replay.head.end_bytes);
    printf("\"end_anonymous_bytes\": %llu, \"settled_anonymous_bytes\": %llu, ",
           (unsigned long long)end_bytes, (unsigned long long)settled_bytes);
    printf("\"damaged\": %llu, \"sums_that_differ\": %llu, \"refused\": %llu, "
           "\"first_refused_bytes\": %llu}\n",
           (unsigned long long)damage->contents, (unsigned long long)damage->sums,
           (unsigned long long)damage->refused, (unsigned long long)damage->refused_bytes);
    return fflush(stdout) == 0 && is_whole ? 0 : 1;
}
