"""The navigation tasks: a robot among objects, made of parts that know nothing of each other.

world      the task itself: reset, step, observation, checkpoints
robots     the robot as numbers: its part of the model
objects    kinds of objects as numbers, and what an arena holds
rules      the table of tasks: what each one places, rewards and charges
sampler    random scenes
layout     scenes that the caller gives, checked
model      the MuJoCo model of a robot among objects
glide      the Point without the engine, while it can touch nothing
alone      the car on an empty floor, while it can touch nothing
contacts   contacts between boxes as the original had them
gremlins   moving boxes, simulated only while something can touch them
sleep      which bodies sleep, as part of a checkpoint
lidar      what the robot observes and MuJoCo does not compute
poses      observations and costs at thousands of poses at once
pictures   the scene for drawings
"""
