# What `make install PREFIX=...` and `cmake --install` put where centres look for it: the program, its pages for man and completions, which it makes
# itself, decks, jobscripts that name the installed program, and a module file for Lmod and Environment Modules.
include(GNUInstallDirs)
set_target_properties(gyrfalcon PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)  # libraries that are not the system's
install(TARGETS gyrfalcon)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/input/ DESTINATION share/gyrfalcon/input)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md DESTINATION share/doc/gyrfalcon)
install(FILES ${PROJECT_SOURCE_DIR}/jobscripts/demo.svg DESTINATION share/doc/gyrfalcon/jobscripts)  # README shows it
set(jobscripts job launcher pbs-cpu pbs-gpu rank_gpu slurm-array slurm-cpu slurm-gpu)
list(TRANSFORM jobscripts REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/jobscripts/\\1.sh")
install(PROGRAMS ${jobscripts} DESTINATION share/gyrfalcon/jobscripts)
install(CODE "
  set(prefix \"\${CMAKE_INSTALL_PREFIX}\")
  cmake_path(ABSOLUTE_PATH prefix NORMALIZE)
  set(version ${PROJECT_VERSION})
  set(root \"\$ENV{DESTDIR}\${prefix}\")
  # A script that has been installed runs its companions, decks and program from there, whatever folder a job begins in.
  file(GLOB scripts \"\${root}/share/gyrfalcon/jobscripts/*.sh\")
  foreach(script IN LISTS scripts)
    execute_process(COMMAND sed -i -e \"s#build/[$](\\\\[ [^]]*\\\\] && echo cuda || echo release)/bin/gyrfalcon#\${prefix}/bin/gyrfalcon#\"
      -e \"s#build/release/bin/gyrfalcon; where ranks have devices build/cuda/bin/gyrfalcon#\${prefix}/bin/gyrfalcon#\"
      -e \"s#\\\\([^a-z/]\\\\)\\\\(jobscripts/[a-z_-]*\\\\.sh\\\\)#\\\\1\${prefix}/share/gyrfalcon/\\\\2#g\"
      -e \"s#\\\\([^a-z/]\\\\)\\\\(input/[a-z0-9.-]*\\\\.yaml\\\\)#\\\\1\${prefix}/share/gyrfalcon/\\\\2#g\" \"\${script}\" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  configure_file(\"${PROJECT_SOURCE_DIR}/jobscripts/modulefile.in\" \"\${root}/share/modulefiles/gyrfalcon/\${version}\" @ONLY)
  execute_process(COMMAND \"\${root}/bin/gyrfalcon\" manual \"\${root}\" RESULT_VARIABLE code ERROR_VARIABLE why OUTPUT_QUIET)
  if(NOT code EQUAL 0)
    message(WARNING \"the installed program does not run here, so that pages for man and completions are not made: gyrfalcon manual \${prefix} makes them where it does: \${why}\")
  endif()
  message(STATUS \"to use it: module use \${prefix}/share/modulefiles && module load gyrfalcon, or PATH=\${prefix}/bin:$PATH\")
")
