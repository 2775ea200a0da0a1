# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs that a hostile or unlucky process might be, in C, with libebbtide.so preloaded. One topic a
# file, one test a case. A hang is the main enemy, so the time limit is short.
set(hostile_options -std=gnu17 -O1 -fno-builtin -fno-optimize-sibling-calls -Wall -Wextra -Wshadow
  -Werror)

# hostile_program(<file without .c> <libraries>...)
function(hostile_program name)
  add_executable(hostile_${name} hostile/${name}.c)
  set_target_properties(hostile_${name} PROPERTIES C_STANDARD 17 C_EXTENSIONS ON)
  target_include_directories(hostile_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_compile_options(hostile_${name} PRIVATE ${hostile_options})
  target_link_libraries(hostile_${name} PRIVATE ${ARGN} Threads::Threads ${CMAKE_DL_LIBS})
  add_dependencies(hostile_${name} ebbtide)
endfunction()

# hostile_case(<file> <environment, ; between, or ""> <arguments>...): its name is the file and the arguments.
function(hostile_case name environment)
  string(JOIN _ test hostile ${name} ${ARGN})
  if(environment)
    string(REGEX REPLACE "[^A-Za-z0-9]+" "_" suffix "${environment}")
    string(APPEND test _${suffix})
  endif()
  add_test(NAME ${test} COMMAND hostile_${name} ${ARGN})
  set_tests_properties(${test} PROPERTIES LABELS hostile TIMEOUT 60 SKIP_RETURN_CODE 77
    ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:ebbtide>;${environment}")
endfunction()

hostile_program(threads_create)
foreach(count IN ITEMS 10 57 60 100 200 500)
  hostile_case(threads_create "" join ${count})
endforeach()
foreach(environment IN ITEMS "" EBB_PURGE_THREAD=0)
  hostile_case(threads_create "${environment}" burst)
  hostile_case(threads_create "${environment}" sleepers)
  hostile_case(threads_create "${environment}" groups 1)
  hostile_case(threads_create "${environment}" groups 50)
  hostile_case(threads_create "${environment}" first_is_free 0)
  hostile_case(threads_create "${environment}" first_is_free 1)
endforeach()

hostile_program(threads_cancel)
hostile_case(threads_cancel "" pending 1)
hostile_case(threads_cancel "" pending 3)
hostile_case(threads_cancel EBB_PURGE_THREAD=0 pending 3)
hostile_case(threads_cancel "" any_time)

hostile_program(threads_exit)
hostile_case(threads_exit "" main_leaves)
hostile_case(threads_exit "" exit)
hostile_case(threads_exit EBB_STATS=exit exit)
hostile_case(threads_exit "" exit_handlers)

hostile_program(fork_handlers)
foreach(count IN ITEMS 1 4)
  hostile_case(fork_handlers "" allocate ${count})
  hostile_case(fork_handlers "" join ${count})
  hostile_case(fork_handlers "" create ${count})
endforeach()

hostile_program(fork_hang)
hostile_case(fork_hang "" stdio 3)
foreach(kind IN ITEMS 0 10) # the others allocate in the handler, which no malloc stands
  hostile_case(fork_hang "" handler ${kind})
endforeach()

hostile_program(fork_spawn)
hostile_case(fork_spawn "" 0)
hostile_case(fork_spawn "" 1)

hostile_program(fork_features ebbtide)
hostile_case(fork_features "" 500 0)
hostile_case(fork_features "" 100 3)
hostile_case(fork_features EBB_PURGE_THREAD=0 200 1)

hostile_program(limits_space)
hostile_case(limits_space "" more 200)
foreach(mib IN ITEMS 150 200 250 300)
  hostile_case(limits_space "" data ${mib})
endforeach()
foreach(mib IN ITEMS 1024 2048 4096 8192)
  hostile_case(limits_space "" whole ${mib})
endforeach()
foreach(mib IN ITEMS 128 256 512 1024 2048 4096 5000 8192 65536)
  hostile_case(limits_space "" from_start ${mib})
endforeach()

hostile_program(limits_lock)
hostile_case(limits_lock "" root)
hostile_case(limits_lock "" limited 64)
hostile_case(limits_lock "" no_threads)

hostile_program(seccomp_worker)
hostile_case(seccomp_worker "" single)
hostile_case(seccomp_worker "" joined 0)
hostile_case(seccomp_worker "" joined 2500)
hostile_case(seccomp_worker "" threads)
hostile_case(seccomp_worker EBB_PURGE_THREAD=0 threads)

# From before the start where a program can start without the call, and from main on.
hostile_program(seccomp_matrix)
foreach(call IN ITEMS membarrier madvise mremap getcpu mincore sched_getaffinity sched_setaffinity
    sched_setscheduler prctl openat open clone3 mprotect munmap prlimit64 getrandom rt_sigprocmask
    clock_nanosleep sched_yield rseq set_robust_list gettid sysinfo brk)
  foreach(error IN ITEMS EPERM ENOSYS)
    foreach(since IN ITEMS exec main)
      hostile_case(seccomp_matrix "" ${call} ${error} ${since})
    endforeach()
  endforeach()
endforeach()

hostile_program(sandbox_namespace)
hostile_case(sandbox_namespace "" user 0)
hostile_case(sandbox_namespace "" user 1000)
hostile_case(sandbox_namespace "" user 3000)
hostile_case(sandbox_namespace "" no_proc)
hostile_case(sandbox_namespace "" empty_root)
hostile_case(sandbox_namespace "" no_descriptors)

hostile_program(thread_attributes)
foreach(kind IN ITEMS 0 1 2) # SCHED_FIFO, one processor, nice 15
  hostile_case(thread_attributes "" odd ${kind})
endforeach()
hostile_case(thread_attributes "" capabilities 0)
# capabilities 1, given up by a raw system call after the helper began, is not promised: docs/adr/0004
hostile_case(thread_attributes "" user)

hostile_program(signals)
foreach(kind IN ITEMS 0 1 2 10 11 12)
  hostile_case(signals "" ${kind})
endforeach()

hostile_program(stats_signal)
hostile_case(stats_signal EBB_STATS=signal own_handler 0)
hostile_case(stats_signal EBB_STATS=signal own_handler 1)
hostile_case(stats_signal EBB_STATS=signal waited)
hostile_case(stats_signal EBB_STATS=signal stormed 0)

hostile_program(misuse_double)
hostile_case(misuse_double "" twice)
hostile_case(misuse_double "" aba)
hostile_case(misuse_double "" between_frees 2) # more are not promised, see docs/adr/0014
foreach(count IN ITEMS 2 5 10 30 100)
  hostile_case(misuse_double "" between_both ${count})
endforeach()
hostile_case(misuse_double "" many 0)
hostile_case(misuse_double "" many 1)
hostile_case(misuse_double "" reallocates 0)
hostile_case(misuse_double "" reallocates 1)
hostile_case(misuse_double "" measures)
hostile_case(misuse_double "" by_fork)

# The last number: 0 free, 1 realloc, 2 malloc_usable_size.
hostile_program(misuse_pointer)
foreach(function IN ITEMS 0 1 2)
  foreach(offset IN ITEMS 1 8 16 32)
    hostile_case(misuse_pointer "" inside ${offset} ${function})
  endforeach()
  hostile_case(misuse_pointer "" at_the_end 0 ${function})
  hostile_case(misuse_pointer "" before_it 8 ${function})
  hostile_case(misuse_pointer "" before_it 16 ${function})
  foreach(name IN ITEMS stack globals code mapping wild sign)
    hostile_case(misuse_pointer "" ${name} 0 ${function})
  endforeach()
  hostile_case(misuse_pointer "" globals 8 ${function})
  hostile_case(misuse_pointer "" small_number 8 ${function})
  hostile_case(misuse_pointer "" small_number -16 ${function})
  foreach(shift IN ITEMS 12 16 21 30)
    hostile_case(misuse_pointer "" start_of_unit ${shift} ${function})
  endforeach()
endforeach()

hostile_program(sleepers)
foreach(count IN ITEMS 64 300)
  foreach(order IN ITEMS 0 1)
    hostile_case(sleepers "" wait ${count} ${order})
    hostile_case(sleepers "" trim ${count} ${order})
  endforeach()
endforeach()

hostile_program(trims)
hostile_case(trims "" 1 1)
hostile_case(trims "" 8 1)
hostile_case(trims "" 16 2)

hostile_program(region_loops ebbtide)
foreach(name IN ITEMS handed_over idle_second closes)
  hostile_case(region_loops "" ${name})
endforeach()
hostile_case(region_loops "" handed_over 1)

hostile_program(threads_odd)
hostile_case(threads_odd "" small_stack)
hostile_case(threads_odd "" no_keys)
hostile_case(threads_odd "" destructors 0)
hostile_case(threads_odd "" destructors 1)
hostile_case(threads_odd "" statistics)

hostile_program(limits_maps)
hostile_case(limits_maps "" at_once)
hostile_case(limits_maps "" later)

hostile_program(retire_cancel ebbtide)
hostile_case(retire_cancel "")

hostile_program(threads_unfinished ebbtide)
foreach(kind IN ITEMS 0 1 2 3 4) # in a pin, a domain, a current region, a region, cancelled
  hostile_case(threads_unfinished "" in_a_row ${kind})
endforeach()
